package config

import (
	"net/netip"
	"path/filepath"
	"time"

	"github.com/kube-ipvs/kube-ipvs/scheduler"
)

// Config is what the settings mean, by topic. It is immutable.
type Config struct {
	Invocation
	Inputs
	ModeChoice
	VirtualServers
	Binding
	Announcing
	SyncPeriods
	Netfilter
	Exposure
	Listeners
	ServiceLimits
	Conntrack Conntrack
	Runtime

	// effective are the settings with every default filled in.
	effective Settings
}

// Invocation is what one call of the program asks for.
type Invocation struct {
	// ConfigFile is the file that the settings came from, "" for none.
	ConfigFile string
	// WriteConfigTo is the file to write the settings to instead of running.
	WriteConfigTo string
	// Cleanup and InitOnly ask for one thing, and an end.
	Cleanup, InitOnly bool
	// Unused are settings that were given and change nothing here, by name.
	Unused []string
}

// Inputs say where Services and this node are read.
type Inputs struct {
	SourceDir string
	Client    Client
	// WatchNodes selects the Nodes whose addresses are followed: WatchAuto, WatchAll, WatchOwn.
	WatchNodes string
	NodeName   string
	// BindAddress is the node's primary address; the unspecified one leaves that to the Node object.
	BindAddress netip.Addr
	// NodeAddresses stand in for a Node object that is not among the manifests.
	NodeAddresses []netip.Addr
	// DNSServices are namespace/name of Services that are served first when a node starts.
	DNSServices []string
}

// ModeChoice chooses the proxy mode.
type ModeChoice struct {
	// Mode is the requested proxy mode. OnMissing applies if it is ModeIPVS and the kernel lacks ip_vs
	// (internal/DECISIONS.md, Missing IPVS).
	Mode      Mode
	OnMissing OnMissing
	// ModeImplied: a file of kube-proxy leaves the mode empty, which kube-proxy takes for iptables, and
	// this program for ipvs.
	ModeImplied bool
}

// VirtualServers has the settings of virtual servers and their destinations.
type VirtualServers struct {
	Scheduler    scheduler.Spec
	ExcludeCIDRs []netip.Prefix
	StrictARP    bool
	Timeouts     Timeouts
	// Drain is how long the connections of an endpoint continue after it stopped serving, where its
	// Service does not say; 0 cuts them.
	Drain time.Duration
	// APIServerProbe is the time between two probes of an endpoint of default/kubernetes; 0 is no probes.
	// It applies in both modes.
	APIServerProbe time.Duration
}

// Binding is how addresses become local in ModeIPVS.
type Binding struct {
	// VIPBinding is how addresses of Services become local, and ServiceCIDRs those that may by one
	// route. The API server has ranges where none are configured.
	VIPBinding   VIPBinding
	ServiceCIDRs []netip.Prefix
	// ExternalBinding is how external and load-balancer addresses become local.
	ExternalBinding ExternalBinding
}

// Announcing is how routers learn which addresses this node serves, in both modes.
type Announcing struct {
	// AnnounceTable is the routing table of the routes that a routing daemon announces; 0 is none.
	AnnounceTable uint32
	// AnnounceLead is how long before its end a stopping agent deletes them; 0 keeps them.
	AnnounceLead time.Duration
}

// SyncPeriods are the times of audits, by mode. Config.Periods returns those of one mode.
type SyncPeriods struct {
	// SyncPeriod is the time between two audits in ModeIPVS. MinSyncPeriod is the least time between two
	// changes of the kernel (internal/DECISIONS.md, No delay between changes).
	SyncPeriod, MinSyncPeriod time.Duration
	// These are the same in ModeIPTables.
	IPTablesSyncPeriod, IPTablesMinSyncPeriod time.Duration
}

// Netfilter has the settings of rules.
type Netfilter struct {
	DetectLocal   DetectLocal
	MasqueradeAll bool
	MasqueradeBit uint8
	IPTables      string // "" detects
	Rules         Rules
}

// Exposure selects the addresses and ports that are served beside cluster IPs.
type Exposure struct {
	// NodePorts is where NodePorts answer, NodePortRange the range of their ports: masquerading keeps out
	// of it.
	NodePorts     NodePortSelection
	NodePortRange PortRange
	// LocalhostNodePorts: NodePorts answer on IPv4 loopback addresses, too. Only in ModeIPTables, and off
	// by default (internal/DECISIONS.md, NodePorts on loopback).
	LocalhostNodePorts bool
	// AllowExternalIPs: external IPs are served, those in ExternalIPCIDRs, or all where it is empty.
	AllowExternalIPs bool
	ExternalIPCIDRs  []netip.Prefix
}

// Listeners has the settings of health checks and metrics.
type Listeners struct {
	// Healthz and Metrics are the addresses of the two listeners, IP:port; "" is off.
	Healthz, Metrics string
	// BindHardFail: a listener that cannot listen ends the process.
	BindHardFail bool
	// Profiling: pprof is served beside the metrics.
	Profiling bool
	// ReadyzWatchBound and HealthzWatchBound are how old the progress of a watch may be before the path
	// is red. The latter may be 0, which is no limit.
	ReadyzWatchBound, HealthzWatchBound time.Duration
	// ServiceMetrics is how many Services have metrics of their own; 0 reads nothing.
	ServiceMetrics int
}

// ServiceLimits bound the rows of one Service.
type ServiceLimits struct {
	// ServiceFrontends is how many frontends one Service has at most.
	ServiceFrontends int
	// ServiceRows is how many destinations one Service has at most, and how many entries for source
	// ranges.
	ServiceRows int
	// ServiceRanges is how many source ranges of each family one Service has at most.
	ServiceRanges int
}

// Runtime has the settings of the process itself.
type Runtime struct {
	OOMScoreAdj int
	RunDir      string
	LogLevel    string
	LogFormat   string
}

// Client is how the API server is reached. Where both addresses are empty it is
// the one of the cluster that the process runs in.
type Client struct {
	// Kubeconfig is a file, Master a URL that wins over the one in it.
	Kubeconfig, Master string
	// ContentType is the content type of requests, AcceptContentTypes that of answers; "" is the
	// client's choice.
	ContentType, AcceptContentTypes string
	// QPS are requests a second, below 0 without a limit, and Burst requests at once.
	QPS   float32
	Burst int
}

// Timeouts are idle times of IPVS. 0 keeps the value of the kernel or, with Recommended, uses the
// value that fits the node. TCP is 0 then.
type Timeouts struct {
	TCP, TCPFin, UDP time.Duration
	Recommended      bool
}

// Conntrack are the settings of connection tracking (KubeProxyConfiguration.conntrack). 0
// leaves the kernel's value.
type Conntrack struct {
	MaxPerCore, Min                              int
	TCPEstablished, TCPCloseWait, UDP, UDPStream time.Duration
	TCPBeLiberal                                 bool
}

// DetectLocal is how pods of this node are told from everybody else.
type DetectLocal struct {
	Mode         string
	ClusterCIDRs []netip.Prefix
	Interface    string
}

// Socket is the path of the agent's unix socket.
func (c Config) Socket() string { return filepath.Join(c.RunDir, "agent.sock") }

// The values of --watch-nodes.
const (
	WatchAuto = "auto" // all of them, unless there are very many
	WatchAll  = "all"
	WatchOwn  = "own"
)
