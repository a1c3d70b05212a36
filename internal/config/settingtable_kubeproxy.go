package config

// proxySettings are the settings of KubeProxyConfiguration
// (kubeproxy.config.k8s.io/v1alpha1), with kube-proxy's flags.
var proxySettings = []setting{
	{"hostname-override", "hostnameOverride", Common, func(s *Settings) any { return &s.Proxy.HostnameOverride }, "name of this node (default: the host's name)"},
	{"proxy-mode", "mode", Common, func(s *Settings) any { return (*string)(&s.Proxy.Mode) }, "mode: ipvs, iptables, or auto (ipvs if the kernel supports it, else iptables)"},
	{"feature-gates", "featureGates", Common, func(s *Settings) any { return &s.Proxy.FeatureGates }, "feature gates of kube-proxy, Name=true,...; AllowServiceExternalIPs=false serves no external IPs, others have no effect"},

	{"ipvs-scheduler", "ipvs.scheduler", IPVS, func(s *Settings) any { return &s.Proxy.IPVS.Scheduler }, "scheduling algorithm: rr wrr lc wlc lblc lblcr sh dh sed nq mh fo ovf twos (default rr)"},
	{"ipvs-exclude-cidrs", "ipvs.excludeCIDRs", IPVS, func(s *Settings) any { return &s.Proxy.IPVS.ExcludeCIDRs }, "ranges in which virtual servers of other programs are not touched; Services there are still served"},
	{"ipvs-strict-arp", "ipvs.strictARP", IPVS, func(s *Settings) any { return &s.Proxy.IPVS.StrictARP }, "answer an ARP request only for addresses of the interface that received it"},
	{"ipvs-sync-period", "ipvs.syncPeriod", IPVS, func(s *Settings) any { return &s.Proxy.IPVS.SyncPeriod }, "time between two audits, each of which reads all rows of the kernel and repairs them"},
	{"ipvs-min-sync-period", "ipvs.minSyncPeriod", IPVS, func(s *Settings) any { return &s.Proxy.IPVS.MinSyncPeriod }, "minimum time between two writes to the kernel; 0 writes each change at once"},
	{"ipvs-tcp-timeout", "ipvs.tcpTimeout", IPVS, func(s *Settings) any { return &s.Proxy.IPVS.TCPTimeout }, "idle timeout of TCP connections in IPVS; 0 keeps the kernel's; recommended sets all three timeouts to fit this node"},
	{"ipvs-tcpfin-timeout", "ipvs.tcpFinTimeout", IPVS, func(s *Settings) any { return &s.Proxy.IPVS.TCPFinTimeout }, "idle timeout of TCP connections in IPVS after a FIN; 0 keeps the kernel's"},
	{"ipvs-udp-timeout", "ipvs.udpTimeout", IPVS, func(s *Settings) any { return &s.Proxy.IPVS.UDPTimeout }, "idle timeout of UDP flows in IPVS; 0 keeps the kernel's"},

	{"iptables-sync-period", "iptables.syncPeriod", IPTables, func(s *Settings) any { return &s.Proxy.IPTables.SyncPeriod }, "time between two audits in iptables mode"},
	{"iptables-min-sync-period", "iptables.minSyncPeriod", IPTables, func(s *Settings) any { return &s.Proxy.IPTables.MinSyncPeriod }, "minimum time between two writes to the kernel; 0 writes each change at once"},
	{"iptables-localhost-nodeports", "iptables.localhostNodePorts", IPTables, func(s *Settings) any { return &s.Proxy.IPTables.LocalhostNodePorts }, "serve NodePorts also on IPv4 loopback addresses (sets route_localnet); iptables mode alone; nodePortAddresses: [localhost] needs no sysctl; off by default (kube-proxy: on)"},

	{"detect-local-mode", "detectLocalMode", Pods, func(s *Settings) any { return (*string)(&s.Proxy.DetectLocalMode) }, "how traffic of local pods is recognized: ClusterCIDR, NodeCIDR, BridgeInterface or InterfaceNamePrefix"},
	{"cluster-cidr", "clusterCIDR", Pods, func(s *Settings) any { return &s.Proxy.ClusterCIDR }, "ranges of pod addresses, one for each IP family: 10.244.0.0/16,fd00:10:244::/56; without it only traffic of this host is masqueraded"},
	{"pod-bridge-interface", "detectLocal.bridgeInterface", Pods, func(s *Settings) any { return &s.Proxy.DetectLocal.BridgeInterface }, "bridge of the local pods, for --detect-local-mode=BridgeInterface"},
	{"pod-interface-name-prefix", "detectLocal.interfaceNamePrefix", Pods, func(s *Settings) any { return &s.Proxy.DetectLocal.InterfaceNamePrefix }, "prefix of the local pods' interface names, for --detect-local-mode=InterfaceNamePrefix"},
	{"masquerade-all", "iptables.masqueradeAll", Pods, func(s *Settings) any { return &s.Proxy.IPTables.MasqueradeAll }, "rewrite the source address of all traffic to cluster IPs"},
	{"iptables-masquerade-bit", "iptables.masqueradeBit", Pods, func(s *Settings) any { return &s.Proxy.IPTables.MasqueradeBit }, "bit of the packet mark that requests masquerading (0-31)"},

	{"nodeport-addresses", "nodePortAddresses", Ports, func(s *Settings) any { return &s.Proxy.NodePortAddresses }, "addresses that serve NodePorts: primary (those of the Node object), localhost (relayed by the agent), all, CIDRs, or several of these (default all)"},
	{"bind-address", "bindAddress", Ports, func(s *Settings) any { return &s.Proxy.BindAddress }, "primary address of this node, used instead of that in the Node object unless it is 0.0.0.0 or ::; no socket is bound to it"},

	{"kubeconfig", "clientConnection.kubeconfig", API, func(s *Settings) any { return &s.Proxy.ClientConnection.Kubeconfig }, "kubeconfig of the API server (default: the cluster in which the agent runs)"},
	{"kube-api-content-type", "clientConnection.contentType", API, func(s *Settings) any { return &s.Proxy.ClientConnection.ContentType }, "content type of requests to the API server"},
	{"", "clientConnection.acceptContentTypes", API, func(s *Settings) any { return &s.Proxy.ClientConnection.AcceptContentTypes }, ""},
	{"kube-api-qps", "clientConnection.qps", API, func(s *Settings) any { return &s.Proxy.ClientConnection.QPS }, "maximum of requests a second to the API server"},
	{"kube-api-burst", "clientConnection.burst", API, func(s *Settings) any { return &s.Proxy.ClientConnection.Burst }, "maximum of requests to the API server in a burst"},

	{"healthz-bind-address", "healthzBindAddress", HTTP, func(s *Settings) any { return &s.Proxy.HealthzBindAddress }, "IP or IP:port of /healthz, /livez and /readyz"},
	{"metrics-bind-address", "metricsBindAddress", HTTP, func(s *Settings) any { return &s.Proxy.MetricsBindAddress }, "IP or IP:port of /metrics, /proxyMode and /configz"},
	{"bind-address-hard-fail", "bindAddressHardFail", HTTP, func(s *Settings) any { return &s.Proxy.BindAddressHardFail }, "exit when the health or metrics listener cannot be opened"},
	{"profiling", "enableProfiling", HTTP, func(s *Settings) any { return &s.Proxy.EnableProfiling }, "serve /debug/pprof on the metrics listener"},

	{"conntrack-max-per-core", "conntrack.maxPerCore", Process, func(s *Settings) any { return &s.Proxy.Conntrack.MaxPerCore }, "maximum of tracked connections for each CPU core; 0 keeps the kernel's and ignores the minimum"},
	{"conntrack-min", "conntrack.min", Process, func(s *Settings) any { return &s.Proxy.Conntrack.Min }, "minimum of the limit of tracked connections"},
	{"conntrack-tcp-timeout-established", "conntrack.tcpEstablishedTimeout", Process, func(s *Settings) any { return &s.Proxy.Conntrack.TCPEstablishedTimeout }, "idle timeout of TCP connections in connection tracking; 0 keeps the kernel's"},
	{"conntrack-tcp-timeout-close-wait", "conntrack.tcpCloseWaitTimeout", Process, func(s *Settings) any { return &s.Proxy.Conntrack.TCPCloseWaitTimeout }, "timeout of TCP connections in CLOSE_WAIT in connection tracking; 0 keeps the kernel's"},
	{"conntrack-tcp-be-liberal", "conntrack.tcpBeLiberal", Process, func(s *Settings) any { return &s.Proxy.Conntrack.TCPBeLiberal }, "accept packets outside the TCP window in connection tracking"},
	{"conntrack-udp-timeout", "conntrack.udpTimeout", Process, func(s *Settings) any { return &s.Proxy.Conntrack.UDPTimeout }, "idle timeout of UDP flows without a reply in connection tracking; 0 keeps the kernel's"},
	{"conntrack-udp-timeout-stream", "conntrack.udpStreamTimeout", Process, func(s *Settings) any { return &s.Proxy.Conntrack.UDPStreamTimeout }, "idle timeout of UDP flows with replies in connection tracking; 0 keeps the kernel's"},
	{"oom-score-adj", "oomScoreAdj", Process, func(s *Settings) any { return &s.Proxy.OOMScoreAdj }, "out-of-memory score adjustment of this process: -1000 (never killed) to 1000"},

	{"logging-format", "logging.format", Logs, func(s *Settings) any { return &s.Proxy.Logging.Format }, "log format: text or json"},
	{"v", "logging.verbosity", Logs, func(s *Settings) any { return &s.Proxy.Logging.Verbosity }, "verbosity of kube-proxy: 4 and more set the log level debug"},

	{"config-sync-period", "configSyncPeriod", Unused, func(s *Settings) any { return &s.Proxy.ConfigSyncPeriod }, "resync period of informers"},
	{"show-hidden-metrics-for-version", "showHiddenMetricsForVersion", Unused, func(s *Settings) any { return &s.Proxy.ShowHiddenMetricsForVersion }, "version of which hidden metrics are shown"},
	{"log-flush-frequency", "logging.flushFrequency", Unused, func(s *Settings) any { return &s.Proxy.Logging.FlushFrequency }, "flush settings of the log, which is never buffered"},
	{"vmodule", "logging.vmodule", Unused, func(s *Settings) any { return &s.Proxy.Logging.VModule }, "verbosity by source file"},
	{"log-text-split-stream", "logging.options.text.splitStream", Unused, func(s *Settings) any { return &s.Proxy.Logging.Options.Text.SplitStream }, "split of the log, which goes to standard error"},
	{"log-text-info-buffer-size", "logging.options.text.infoBufferSize", Unused, func(s *Settings) any { return &s.Proxy.Logging.Options.Text.InfoBufferSize }, "flush settings of the log, which is never buffered"},
	{"log-json-split-stream", "logging.options.json.splitStream", Unused, func(s *Settings) any { return &s.Proxy.Logging.Options.JSON.SplitStream }, "split of the log, which goes to standard error"},
	{"log-json-info-buffer-size", "logging.options.json.infoBufferSize", Unused, func(s *Settings) any { return &s.Proxy.Logging.Options.JSON.InfoBufferSize }, "flush settings of the log, which is never buffered"},

	{"", "nftables.masqueradeBit", Unused, func(s *Settings) any { return &s.Proxy.NFTables.MasqueradeBit }, ""},
	{"", "nftables.masqueradeAll", Unused, func(s *Settings) any { return &s.Proxy.NFTables.MasqueradeAll }, ""},
	{"", "nftables.syncPeriod", Unused, func(s *Settings) any { return &s.Proxy.NFTables.SyncPeriod }, ""},
	{"", "nftables.minSyncPeriod", Unused, func(s *Settings) any { return &s.Proxy.NFTables.MinSyncPeriod }, ""},
	{"", "winkernel.networkName", Unused, func(s *Settings) any { return &s.Proxy.Winkernel.NetworkName }, ""},
	{"", "winkernel.sourceVip", Unused, func(s *Settings) any { return &s.Proxy.Winkernel.SourceVip }, ""},
	{"", "winkernel.enableDSR", Unused, func(s *Settings) any { return &s.Proxy.Winkernel.EnableDSR }, ""},
	{"", "winkernel.rootHnsEndpointName", Unused, func(s *Settings) any { return &s.Proxy.Winkernel.RootHnsEndpointName }, ""},
	{"", "winkernel.forwardHealthCheckVip", Unused, func(s *Settings) any { return &s.Proxy.Winkernel.ForwardHealthCheckVip }, ""},
	{"", "portRange", Unused, func(s *Settings) any { return &s.Proxy.PortRange }, ""},
	{"", "windowsRunAsService", Unused, func(s *Settings) any { return &s.Proxy.WindowsRunAsService }, ""},
}
