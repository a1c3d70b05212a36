package config

// setting is one thing that can be set: by a flag, in a field of the file, or both.
// Flags, the file, names in mistakes and what a reload changes all go by this table.
type setting struct {
	flag  string // without dashes; "" for the file alone
	field string // its path in its document; "" for the command line alone
	group Group
	at    func(*Settings) any // a pointer to where it is kept
	usage string
}

// Group is a heading of --help.
type Group string

// The groups, in the order in which help shows them. Flags of Unused are accepted
// from kube-proxy's command line and change nothing; they and those of Deprecated
// are hidden.
const (
	Common     Group = "Services and this node"
	IPVS       Group = "IPVS"
	IPTables   Group = "iptables mode"
	Pods       Group = "Local pods and masquerading"
	Ports      Group = "Node ports and external IPs"
	API        Group = "API server"
	HTTP       Group = "Health and metrics"
	Process    Group = "Connection tracking and this process"
	Logs       Group = "Logs"
	Once       Group = "Instead of running"
	Deprecated Group = "Deprecated"
	Unused     Group = "Accepted, without effect here"
)

// Groups lists the groups that help shows.
func Groups() []Group {
	return []Group{Common, IPVS, IPTables, Pods, Ports, API, HTTP, Process, Logs, Once}
}

// lineSettings are on the command line alone.
var lineSettings = []setting{
	{"config", "", Common, func(s *Settings) any { return &s.ConfigFile }, "file with a KubeProxyConfiguration, a KubeIPVSConfiguration or both; changes are applied; flags override it"},
	{"master", "", API, func(s *Settings) any { return &s.Master }, "URL of the API server, instead of the one in the kubeconfig"},
	{"write-config-to", "", Once, func(s *Settings) any { return &s.WriteConfigTo }, "write all settings, defaults included, to this file and exit"},
	{"cleanup", "", Once, func(s *Settings) any { return &s.Cleanup }, "remove everything of kube-ipvs from this node and exit"},
	{"init-only", "", Once, func(s *Settings) any { return &s.InitOnly }, "load modules and set sysctls, which needs privileges, then exit without writing Services"},
	{"healthz-port", "", Deprecated, func(s *Settings) any { return &s.HealthzPort }, "port of the health listener, 0 for none; use --healthz-bind-address instead"},
	{"metrics-port", "", Deprecated, func(s *Settings) any { return &s.MetricsPort }, "port of the metrics listener, 0 for none; use --metrics-bind-address instead"},
	{"boot-id-file", "", Unused, func(s *Settings) any { return &s.unread[0] }, "files with the boot ID"},
	{"machine-id-file", "", Unused, func(s *Settings) any { return &s.unread[1] }, "files with the machine ID"},
}

// planSettings are flags of the verb plan.
var planSettings = []setting{
	{"node-address", "", Common, func(s *Settings) any { return &s.NodeAddresses }, "addresses of the node, used instead of those in its Node object"},
}

// ownSettings are those of KubeIPVSConfiguration.
var ownSettings = []setting{
	{"source-dir", "sourceDir", Common, func(s *Settings) any { return &s.Own.SourceDir }, "directory of manifests (Service, EndpointSlice, Node), or one file; changes are applied"},
	{"run-dir", "runDir", Common, func(s *Settings) any { return &s.Own.RunDir }, "directory of the agent's socket, lock and journal"},
	{"on-missing-ipvs", "onMissingIPVS", Common, func(s *Settings) any { return &s.Own.OnMissingIPVS }, "what --proxy-mode=ipvs does on a kernel without IPVS: iptables (serve in iptables mode, with a warning) or fail"},
	{"iptables-backend", "iptablesBackend", Common, func(s *Settings) any { return &s.Own.IPTablesBackend }, "iptables backend: auto, nft or legacy; auto uses the backend that has the host's rules"},
	{"rules", "rules", IPVS, func(s *Settings) any { return &s.Own.Rules }, "subsystem of rules and sets: iptables (with ipset), nftables, or auto (iptables if kernel and tools support both, else nftables)"},
	{"drain", "drain", IPVS, func(s *Settings) any { return &s.Own.Drain }, "how long connections to a removed endpoint may continue, 0s (cut at once) to 1h; the annotation kube-ipvs.io/drain of a Service overrides it"},
	{"vip-binding", "vipBinding", IPVS, func(s *Settings) any { return &s.Own.VIPBinding }, "how addresses of Services become local: address (each is bound to kube-ipvs0) or route (one local route for each of --service-cidrs, other addresses are bound)"},
	{"external-binding", "externalBinding", IPVS, func(s *Settings) any { return &s.Own.ExternalBinding }, "how external IPs and load-balancer addresses become local: auto (bound to kube-ipvs0 if no other machine can have the address, else captured by port), bind or capture"},
	{"service-cidrs", "serviceCIDRs", IPVS, func(s *Settings) any { return &s.Own.ServiceCIDRs }, "ranges of cluster IPs for --vip-binding=route, the same as --service-cluster-ip-range of the API server; empty: its ServiceCIDR objects"},
	{"", "ipvsTimeouts", IPVS, func(s *Settings) any { return &s.Own.IPVSTimeouts }, ""},
	{"service-node-port-range", "serviceNodePortRange", Ports, func(s *Settings) any { return &s.Own.ServiceNodePortRange }, "ports of NodePorts, the same as for the API server; masquerading uses none of them as source port, or any with 0-0"},
	{"external-ip-allowed-cidrs", "externalIPAllowedCIDRs", Ports, func(s *Settings) any { return &s.Own.ExternalIPAllowedCIDRs }, "serve external IPs of Services in these ranges only (default: all)"},
	{"watch-nodes", "watchNodes", API, func(s *Settings) any { return &s.Own.WatchNodes }, "Nodes to watch, so that none of their addresses is bound on this node: all, own (only this Node), or auto (all in clusters of up to 500 Nodes)"},
	{"api-server-probe-period", "apiServerProbePeriod", API, func(s *Settings) any { return &s.Own.APIServerProbePeriod }, "time between two probes of each endpoint of default/kubernetes; one that fails three in a row gets no new connections; 0 disables probes"},
	{"readyz-watch-bound", "readyzWatchBound", HTTP, func(s *Settings) any { return &s.Own.ReadyzWatchBound }, "/readyz fails when a watch has made no progress for longer"},
	{"healthz-watch-bound", "healthzWatchBound", HTTP, func(s *Settings) any { return &s.Own.HealthzWatchBound }, "/healthz fails, and load balancers stop using this node, when a watch has made no progress for longer; 0 disables this"},
	{"announce-table", "announceTable", Ports, func(s *Settings) any { return &s.Own.AnnounceTable }, "routing table with one route for each load-balancer address and external IP that this node serves, for a routing daemon (BIRD, FRR) to announce; 0 announces none"},
	{"announce-lead", "announceLead", Ports, func(s *Settings) any { return &s.Own.AnnounceLead }, "how long before its end a stopping agent deletes the routes of --announce-table, 0s (keeps them) to 1m"},
	{"service-frontends", "serviceFrontends", Ports, func(s *Settings) any { return &s.Own.ServiceFrontends }, "maximum of frontends (ports times addresses) of one Service; more are not served"},
	{"service-rows", "serviceRows", Ports, func(s *Settings) any { return &s.Own.ServiceRows }, "maximum of destinations (frontends times endpoints) plus source range entries of one Service; frontends beyond it are not served"},
	{"service-source-ranges", "serviceSourceRanges", Ports, func(s *Settings) any { return &s.Own.ServiceSourceRanges }, "maximum of source ranges of one Service in each IP family; clients in further ranges are not admitted"},
	{"dns-services", "dnsServices", Common, func(s *Settings) any { return &s.Own.DNSServices }, "NAMESPACE/NAME of DNS Services to serve first on a new node; Services of kube-system with the label k8s-app=kube-dns are always among them"},
	{"service-metrics", "serviceMetrics", HTTP, func(s *Settings) any { return &s.Own.ServiceMetrics }, "maximum of Services with metrics of their own; the others are summed; 0 disables metrics by Service"},
	{"log-level", "logLevel", Logs, func(s *Settings) any { return &s.Own.LogLevel }, "log level: debug, info, warn or error (default: info, or debug with -v=4 and more)"},
}

// byFlag finds a setting by its flag.
var byFlag = indexed(func(s setting) string { return s.flag })

// byField finds a setting by its field. No field of one document has the path of
// one of the other.
var byField = indexed(func(s setting) string { return s.field })

func indexed(key func(setting) string) map[string]setting {
	out := map[string]setting{}
	for _, list := range [][]setting{ownSettings, proxySettings, lineSettings, planSettings} {
		for _, s := range list {
			if k := key(s); k != "" {
				out[k] = s
			}
		}
	}
	return out
}
