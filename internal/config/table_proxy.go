package config

// proxySettings are the settings of KubeProxyConfiguration
// (kubeproxy.config.k8s.io/v1alpha1), with kube-proxy's flags.
var proxySettings = []setting{
	{"hostname-override", "hostnameOverride", Common, func(s *Settings) any { return &s.Proxy.HostnameOverride }, "name of this node (default: the host's name)"},
	{"proxy-mode", "mode", Common, func(s *Settings) any { return (*string)(&s.Proxy.Mode) }, "how to carry Services: ipvs, iptables, or auto: ipvs where the kernel has it, else iptables"},
	{"feature-gates", "featureGates", Common, func(s *Settings) any { return &s.Proxy.FeatureGates }, "gates of kube-proxy, Name=true,...; AllowServiceExternalIPs=false serves no external IPs, others change nothing"},

	{"ipvs-scheduler", "ipvs.scheduler", IPVS, func(s *Settings) any { return &s.Proxy.IPVS.Scheduler }, "algorithm: rr wrr lc wlc lblc lblcr sh dh sed nq mh fo ovf (default rr)"},
	{"ipvs-exclude-cidrs", "ipvs.excludeCIDRs", IPVS, func(s *Settings) any { return &s.Proxy.IPVS.ExcludeCIDRs }, "ranges in which virtual servers of others are left alone; Services there are served all the same"},
	{"ipvs-strict-arp", "ipvs.strictARP", IPVS, func(s *Settings) any { return &s.Proxy.IPVS.StrictARP }, "answer ARP only for addresses of the interface that was asked"},
	{"ipvs-sync-period", "ipvs.syncPeriod", IPVS, func(s *Settings) any { return &s.Proxy.IPVS.SyncPeriod }, "time between two rounds that look for drift in the kernel"},
	{"ipvs-min-sync-period", "ipvs.minSyncPeriod", IPVS, func(s *Settings) any { return &s.Proxy.IPVS.MinSyncPeriod }, "least time between two changes of the kernel; 0 writes at once"},
	{"ipvs-tcp-timeout", "ipvs.tcpTimeout", IPVS, func(s *Settings) any { return &s.Proxy.IPVS.TCPTimeout }, "idle time of TCP connections; 0 leaves the kernel's, recommended sets all three as fits the node"},
	{"ipvs-tcpfin-timeout", "ipvs.tcpFinTimeout", IPVS, func(s *Settings) any { return &s.Proxy.IPVS.TCPFinTimeout }, "idle time of TCP connections after a FIN; 0 leaves the kernel's"},
	{"ipvs-udp-timeout", "ipvs.udpTimeout", IPVS, func(s *Settings) any { return &s.Proxy.IPVS.UDPTimeout }, "idle time of UDP flows; 0 leaves the kernel's"},

	{"iptables-sync-period", "iptables.syncPeriod", IPTables, func(s *Settings) any { return &s.Proxy.IPTables.SyncPeriod }, "time between two rounds that look for drift in the kernel, as --ipvs-sync-period is in ipvs mode"},
	{"iptables-min-sync-period", "iptables.minSyncPeriod", IPTables, func(s *Settings) any { return &s.Proxy.IPTables.MinSyncPeriod }, "least time between two changes of the kernel; 0 writes at once"},
	{"iptables-localhost-nodeports", "iptables.localhostNodePorts", IPTables, func(s *Settings) any { return &s.Proxy.IPTables.LocalhostNodePorts }, "NodePorts answer on loopback addresses of IPv4, too, which takes route_localnet; never in ipvs mode, and off unless set (kube-proxy: on)"},

	{"detect-local-mode", "detectLocalMode", Pods, func(s *Settings) any { return (*string)(&s.Proxy.DetectLocalMode) }, "how pods of this node are told: ClusterCIDR, NodeCIDR, BridgeInterface, InterfaceNamePrefix"},
	{"cluster-cidr", "clusterCIDR", Pods, func(s *Settings) any { return &s.Proxy.ClusterCIDR }, "ranges of pod addresses, one a family: 10.244.0.0/16,fd00:10:244::/56; without it only this host is masqueraded"},
	{"pod-bridge-interface", "detectLocal.bridgeInterface", Pods, func(s *Settings) any { return &s.Proxy.DetectLocal.BridgeInterface }, "bridge of the local pods, for BridgeInterface"},
	{"pod-interface-name-prefix", "detectLocal.interfaceNamePrefix", Pods, func(s *Settings) any { return &s.Proxy.DetectLocal.InterfaceNamePrefix }, "beginning of the local pods' interface names, for InterfaceNamePrefix"},
	{"masquerade-all", "iptables.masqueradeAll", Pods, func(s *Settings) any { return &s.Proxy.IPTables.MasqueradeAll }, "rewrite the source of all traffic to cluster IPs"},
	{"iptables-masquerade-bit", "iptables.masqueradeBit", Pods, func(s *Settings) any { return &s.Proxy.IPTables.MasqueradeBit }, "bit of the packet mark that asks for masquerading (0-31)"},

	{"nodeport-addresses", "nodePortAddresses", Ports, func(s *Settings) any { return &s.Proxy.NodePortAddresses }, "where NodePorts answer: primary (addresses of the Node), localhost, all, CIDRs, or several of these (default all)"},
	{"bind-address", "bindAddress", Ports, func(s *Settings) any { return &s.Proxy.BindAddress }, "primary address of this node instead of the Node's, unless unspecified; nothing is bound to it"},

	{"kubeconfig", "clientConnection.kubeconfig", API, func(s *Settings) any { return &s.Proxy.ClientConnection.Kubeconfig }, "file that says how the API server is reached (default: the cluster this runs in)"},
	{"kube-api-content-type", "clientConnection.contentType", API, func(s *Settings) any { return &s.Proxy.ClientConnection.ContentType }, "type of what is sent to the API server"},
	{"", "clientConnection.acceptContentTypes", API, func(s *Settings) any { return &s.Proxy.ClientConnection.AcceptContentTypes }, ""},
	{"kube-api-qps", "clientConnection.qps", API, func(s *Settings) any { return &s.Proxy.ClientConnection.QPS }, "requests a second"},
	{"kube-api-burst", "clientConnection.burst", API, func(s *Settings) any { return &s.Proxy.ClientConnection.Burst }, "requests at once"},

	{"healthz-bind-address", "healthzBindAddress", HTTP, func(s *Settings) any { return &s.Proxy.HealthzBindAddress }, "IP or IP:port of /healthz, /livez and /readyz"},
	{"metrics-bind-address", "metricsBindAddress", HTTP, func(s *Settings) any { return &s.Proxy.MetricsBindAddress }, "IP or IP:port of /metrics, /proxyMode and /configz"},
	{"bind-address-hard-fail", "bindAddressHardFail", HTTP, func(s *Settings) any { return &s.Proxy.BindAddressHardFail }, "end when one of the two cannot be listened on"},
	{"profiling", "enableProfiling", HTTP, func(s *Settings) any { return &s.Proxy.EnableProfiling }, "serve /debug/pprof beside the metrics"},

	{"conntrack-max-per-core", "conntrack.maxPerCore", Process, func(s *Settings) any { return &s.Proxy.Conntrack.MaxPerCore }, "tracked connections a core; 0 leaves the kernel's and ignores the minimum"},
	{"conntrack-min", "conntrack.min", Process, func(s *Settings) any { return &s.Proxy.Conntrack.Min }, "tracked connections at least"},
	{"conntrack-tcp-timeout-established", "conntrack.tcpEstablishedTimeout", Process, func(s *Settings) any { return &s.Proxy.Conntrack.TCPEstablishedTimeout }, "idle time of TCP connections; 0 leaves the kernel's"},
	{"conntrack-tcp-timeout-close-wait", "conntrack.tcpCloseWaitTimeout", Process, func(s *Settings) any { return &s.Proxy.Conntrack.TCPCloseWaitTimeout }, "time of TCP connections in CLOSE_WAIT; 0 leaves the kernel's"},
	{"conntrack-tcp-be-liberal", "conntrack.tcpBeLiberal", Process, func(s *Settings) any { return &s.Proxy.Conntrack.TCPBeLiberal }, "track packets outside the TCP window, too"},
	{"conntrack-udp-timeout", "conntrack.udpTimeout", Process, func(s *Settings) any { return &s.Proxy.Conntrack.UDPTimeout }, "idle time of UDP without a reply; 0 leaves the kernel's"},
	{"conntrack-udp-timeout-stream", "conntrack.udpStreamTimeout", Process, func(s *Settings) any { return &s.Proxy.Conntrack.UDPStreamTimeout }, "idle time of UDP with replies; 0 leaves the kernel's"},
	{"oom-score-adj", "oomScoreAdj", Process, func(s *Settings) any { return &s.Proxy.OOMScoreAdj }, "how willingly the kernel ends this process when memory is short (-1000 to 1000)"},

	{"logging-format", "logging.format", Logs, func(s *Settings) any { return &s.Proxy.Logging.Format }, "text or json"},
	{"v", "logging.verbosity", Logs, func(s *Settings) any { return &s.Proxy.Logging.Verbosity }, "kube-proxy's verbosity: 4 and more log at level debug"},

	{"config-sync-period", "configSyncPeriod", Unused, func(s *Settings) any { return &s.Proxy.ConfigSyncPeriod }, "time between two resyncs of informers"},
	{"show-hidden-metrics-for-version", "showHiddenMetricsForVersion", Unused, func(s *Settings) any { return &s.Proxy.ShowHiddenMetricsForVersion }, "show metrics that this release hid"},
	{"log-flush-frequency", "logging.flushFrequency", Unused, func(s *Settings) any { return &s.Proxy.Logging.FlushFrequency }, "logs are not held back"},
	{"vmodule", "logging.vmodule", Unused, func(s *Settings) any { return &s.Proxy.Logging.VModule }, "verbosity of single source files"},
	{"log-text-split-stream", "logging.options.text.splitStream", Unused, func(s *Settings) any { return &s.Proxy.Logging.Options.Text.SplitStream }, "logs go to standard error"},
	{"log-text-info-buffer-size", "logging.options.text.infoBufferSize", Unused, func(s *Settings) any { return &s.Proxy.Logging.Options.Text.InfoBufferSize }, "logs are not held back"},
	{"log-json-split-stream", "logging.options.json.splitStream", Unused, func(s *Settings) any { return &s.Proxy.Logging.Options.JSON.SplitStream }, "logs go to standard error"},
	{"log-json-info-buffer-size", "logging.options.json.infoBufferSize", Unused, func(s *Settings) any { return &s.Proxy.Logging.Options.JSON.InfoBufferSize }, "logs are not held back"},

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
