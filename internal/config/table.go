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
	Common     Group = "What is served, and where"
	IPVS       Group = "IPVS"
	IPTables   Group = "iptables mode"
	Pods       Group = "Which traffic is that of local pods, and what is masqueraded"
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
	{"config", "", Common, func(s *Settings) any { return &s.ConfigFile }, "file with a KubeProxyConfiguration, a KubeIPVSConfiguration or both; watched; flags win over it"},
	{"master", "", API, func(s *Settings) any { return &s.Master }, "URL of the API server, instead of the one in the kubeconfig"},
	{"write-config-to", "", Once, func(s *Settings) any { return &s.WriteConfigTo }, "write all settings to this file, defaults filled in, and end"},
	{"cleanup", "", Once, func(s *Settings) any { return &s.Cleanup }, "remove everything of kube-ipvs from this node, and end"},
	{"init-only", "", Once, func(s *Settings) any { return &s.InitOnly }, "do what needs privileges, write no Services, and end"},
	{"healthz-port", "", Deprecated, func(s *Settings) any { return &s.HealthzPort }, "port of the health listener, 0 for none; say --healthz-bind-address"},
	{"metrics-port", "", Deprecated, func(s *Settings) any { return &s.MetricsPort }, "port of the metrics listener, 0 for none; say --metrics-bind-address"},
	{"boot-id-file", "", Unused, func(s *Settings) any { return &s.unread[0] }, "files that name the boot"},
	{"machine-id-file", "", Unused, func(s *Settings) any { return &s.unread[1] }, "files that name the machine"},
}

// planSettings are flags of the verb plan.
var planSettings = []setting{
	{"node-address", "", Common, func(s *Settings) any { return &s.NodeAddresses }, "addresses of the node, instead of those that its Node object has"},
}

// ownSettings are those of KubeIPVSConfiguration.
var ownSettings = []setting{
	{"source-dir", "sourceDir", Common, func(s *Settings) any { return &s.Own.SourceDir }, "directory of manifests (Service, EndpointSlice, Node), or one file; watched"},
	{"run-dir", "runDir", Common, func(s *Settings) any { return &s.Own.RunDir }, "directory of the agent's socket, lock and journal"},
	{"on-missing-ipvs", "onMissingIPVS", Common, func(s *Settings) any { return &s.Own.OnMissingIPVS }, "what --proxy-mode=ipvs does on a kernel without IPVS: iptables (carry Services that way, with a warning) or fail"},
	{"iptables-backend", "iptablesBackend", Common, func(s *Settings) any { return &s.Own.IPTablesBackend }, "auto, nft or legacy; auto looks where the host's rules live"},
	{"drain", "drain", IPVS, func(s *Settings) any { return &s.Own.Drain }, "how long connections of an endpoint go on that is gone: 0s (cut) to 1h; the annotation kube-ipvs.io/drain of a Service wins"},
	{"vip-binding", "vipBinding", IPVS, func(s *Settings) any { return &s.Own.VIPBinding }, "how addresses of Services become local: address (one each on kube-ipvs0) or route (one local route for each of --service-cidrs, and addresses for the rest)"},
	{"external-binding", "externalBinding", IPVS, func(s *Settings) any { return &s.Own.ExternalBinding }, "how external IPs and load-balancer addresses become local: auto (bound to kube-ipvs0 if no other machine may have the address, else captured by port), bind, or capture"},
	{"service-cidrs", "serviceCIDRs", IPVS, func(s *Settings) any { return &s.Own.ServiceCIDRs }, "ranges of cluster IPs, as the API server is told by its --service-cluster-ip-range; needed unless --vip-binding=address"},
	{"", "ipvsTimeouts", IPVS, func(s *Settings) any { return &s.Own.IPVSTimeouts }, ""},
	{"service-node-port-range", "serviceNodePortRange", Ports, func(s *Settings) any { return &s.Own.ServiceNodePortRange }, "ports of NodePorts, as the API server is told: masquerading takes none of them; 0-0 if it may"},
	{"external-ip-allowed-cidrs", "externalIPAllowedCIDRs", Ports, func(s *Settings) any { return &s.Own.ExternalIPAllowedCIDRs }, "serve external IPs of Services in these ranges only (default: all)"},
	{"watch-nodes", "watchNodes", API, func(s *Settings) any { return &s.Own.WatchNodes }, "whose addresses are followed, so that none of them is bound here: all, own (this Node alone), or auto: all up to 500 Nodes"},
	{"readyz-watch-bound", "readyzWatchBound", HTTP, func(s *Settings) any { return &s.Own.ReadyzWatchBound }, "/readyz is red when the progress of a watch is older"},
	{"healthz-watch-bound", "healthzWatchBound", HTTP, func(s *Settings) any { return &s.Own.HealthzWatchBound }, "/healthz is red, and load balancers leave this node, when the progress of a watch is older; 0 never"},
	{"service-frontends", "serviceFrontends", Ports, func(s *Settings) any { return &s.Own.ServiceFrontends }, "how many frontends (ports times addresses) one Service has at most; those beyond are not served"},
	{"service-rows", "serviceRows", Ports, func(s *Settings) any { return &s.Own.ServiceRows }, "how many destinations (frontends times endpoints) one Service has at most, and entries for source ranges; frontends beyond are not served"},
	{"service-source-ranges", "serviceSourceRanges", Ports, func(s *Settings) any { return &s.Own.ServiceSourceRanges }, "how many source ranges of each family one Service has at most; clients in those beyond are not admitted"},
	{"dns-services", "dnsServices", Common, func(s *Settings) any { return &s.Own.DNSServices }, "NAMESPACE/NAME of DNS Services, to serve first on a new node; those of kube-system with the label k8s-app=kube-dns are found without"},
	{"service-metrics", "serviceMetrics", HTTP, func(s *Settings) any { return &s.Own.ServiceMetrics }, "how many Services have metrics of their own; those beyond are summed; 0 is no metrics by Service"},
	{"log-level", "logLevel", Logs, func(s *Settings) any { return &s.Own.LogLevel }, "debug, info, warn or error (default: info, or debug with -v=4 and more)"},
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
