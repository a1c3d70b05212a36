package config

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// OwnAPIVersion and OwnKind head the document of kube-ipvs in the file.
const (
	OwnAPIVersion = "kube-ipvs.io/v1alpha1"
	OwnKind       = "KubeIPVSConfiguration"
)

// KubeIPVSConfiguration has the settings that kube-proxy does not have. It is a document of its
// own, so that kube-proxy's stays as it is. A field that is empty has its default; each field is
// also a flag.
type KubeIPVSConfiguration struct {
	metav1.TypeMeta `json:",inline"`

	// sourceDir is a directory of manifests, or one file, that is followed
	// (--source-dir).
	SourceDir string `json:"sourceDir"`
	// runDir is where socket, lock and journal live (--run-dir).
	// Default /run/kube-ipvs.
	RunDir string `json:"runDir"`
	// onMissingIPVS is what mode: ipvs does on a kernel without IPVS: iptables, the default,
	// carries Services in iptables mode; fail ends the agent (--on-missing-ipvs).
	OnMissingIPVS string `json:"onMissingIPVS"`
	// iptablesBackend is nft, legacy, or auto, the default: where the host's rules
	// live (--iptables-backend).
	IPTablesBackend string `json:"iptablesBackend"`
	// rules is where ipvs mode keeps its rules and sets: iptables (with ipset), nftables, or auto,
	// the default: iptables where the kernel and the tools have both, else nftables (--rules).
	Rules string `json:"rules"`
	// serviceNodePortRange are the ports of NodePorts, the same as --service-node-port-range of the
	// API server. Default 30000-32767; 0-0 is unknown.
	ServiceNodePortRange string `json:"serviceNodePortRange"`
	// externalIPAllowedCIDRs hold the external IPs that may be served; empty allows all,
	// which lets a Service claim any address (--external-ip-allowed-cidrs, CVE-2020-8554).
	ExternalIPAllowedCIDRs []string `json:"externalIPAllowedCIDRs"`
	// logLevel is debug, info, warn or error (--log-level). Empty follows
	// logging.verbosity: debug from 4 on, else info.
	LogLevel string `json:"logLevel"`
	// drain is how long the connections of an endpoint outlive it after it stopped serving,
	// from 0s, which cuts them, to 1h (--drain). Default 30s. The annotation
	// kube-ipvs.io/drain of a Service overrides it.
	Drain *metav1.Duration `json:"drain"`
	// vipBinding is how addresses of Services become local to this machine (--vip-binding).
	// address, the default, binds each to kube-ipvs0. route makes each of serviceCIDRs local by one
	// route, and binds only addresses outside of them.
	VIPBinding        string `json:"vipBinding"`
	ExternalAddresses `json:",inline"`
	// serviceCIDRs are the ranges of cluster IPs, the same as --service-cluster-ip-range of the API
	// server (--service-cidrs). By default vipBinding route takes those of the ServiceCIDR objects of the
	// API server, where it has them and the agent may list them; else it binds each address.
	ServiceCIDRs []string `json:"serviceCIDRs"`
	// ipvsTimeouts is recommended, or empty, the default. Recommended are idle times of
	// IPVS that fit connection tracking and keepalive of the node, in place of
	// ipvs.tcpTimeout (--ipvs-tcp-timeout=recommended). ipvs.tcpFinTimeout and
	// ipvs.udpTimeout, where they are set, hold beside it.
	IPVSTimeouts string `json:"ipvsTimeouts"`
	// watchNodes selects the Nodes that the agent watches, so that it binds none of their addresses
	// (--watch-nodes). The values are all, own (only this Node), and auto, the default: all in a
	// cluster of up to 500 Nodes.
	WatchNodes  string `json:"watchNodes"`
	WatchBounds `json:",inline"`
	// serviceMetrics is how many Services have metrics of their own; those beyond are
	// summed (--service-metrics). 0 is no metrics by Service at all. Default 500.
	ServiceMetrics *int32 `json:"serviceMetrics"`
	ServiceBounds  `json:",inline"`
	// apiServerProbePeriod is the time between two probes of each endpoint of default/kubernetes
	// (--api-server-probe-period). An API server that does not answer three of them in a row gets no
	// new connections of this node. 0s turns probes off. Default 10s.
	APIServerProbePeriod *metav1.Duration `json:"apiServerProbePeriod"`
	// dnsServices are Services, as namespace/name, that are served first when a node starts
	// (--dns-services), beside default/kubernetes and those of kube-system with the label
	// k8s-app: kube-dns.
	DNSServices []string `json:"dnsServices"`
}

// ExternalAddresses say how external IPs and load-balancer addresses become local to this machine,
// and how routers learn which of them it serves.
type ExternalAddresses struct {
	// externalBinding is how external IPs and load-balancer addresses become local to this machine
	// (--external-binding). auto, the default, binds addresses that no other machine can have and
	// captures the rest by port. bind binds all but those that this machine, a Node or the API
	// server has now. capture binds none.
	ExternalBinding string `json:"externalBinding"`
	// announceTable is a routing table of the kernel (--announce-table). The agent keeps one route in it
	// for each load-balancer address and external IP that this node serves, and a routing daemon
	// announces them. Default 0: no table.
	AnnounceTable *int32 `json:"announceTable"`
	// announceLead is how long before its end a stopping agent deletes these routes
	// (--announce-lead). Default 5s; 0s keeps them.
	AnnounceLead *metav1.Duration `json:"announceLead"`
}

// WatchBounds say how old the progress of a watch may be.
type WatchBounds struct {
	// readyzWatchBound is how old the progress of a watch may be before /readyz is red
	// (--readyz-watch-bound). Default 2m.
	ReadyzWatchBound *metav1.Duration `json:"readyzWatchBound"`
	// healthzWatchBound is the same for /healthz (--healthz-watch-bound). Default 0s:
	// never. Load balancers leave a node that is red, and when the API server is away
	// all nodes would be at once.
	HealthzWatchBound *metav1.Duration `json:"healthzWatchBound"`
}

// ServiceBounds bound what one Service may have, so that one tenant does not fill the kernel.
type ServiceBounds struct {
	// serviceFrontends is how many frontends (ports times addresses) one Service has at most
	// (--service-frontends). Those beyond are not served, the weaker kinds first. Default 4096.
	ServiceFrontends *int32 `json:"serviceFrontends"`
	// serviceRows is how many destinations (frontends times endpoints) one Service has at
	// most, and how many entries for source ranges (--service-rows): with many of them, fewer
	// frontends are served. Default 262144.
	ServiceRows *int32 `json:"serviceRows"`
	// serviceSourceRanges is how many source ranges of each family one Service has at most
	// (--service-source-ranges). Clients in those beyond are not admitted. Default 4096.
	ServiceSourceRanges *int32 `json:"serviceSourceRanges"`
}
