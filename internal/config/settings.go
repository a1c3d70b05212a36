package config

import "time"

// Settings are the flags as they were given. Their meaning, defaults and limits
// are kube-proxy's where kube-proxy has the flag (contract section 1.1).
type Settings struct {
	// SourceDir is a directory of manifests, or one file (--source-dir).
	SourceDir string
	// Kubeconfig is a file that says how the API server is reached (--kubeconfig),
	// Master its URL (--master).
	Kubeconfig, Master string
	// HostnameOverride is the node's name; empty asks the host
	// (--hostname-override).
	HostnameOverride string
	// ProxyMode is ipvs (--proxy-mode).
	ProxyMode string
	// Scheduler is the default algorithm (--ipvs-scheduler).
	Scheduler string
	// ExcludeCIDRs hold virtual servers of others (--ipvs-exclude-cidrs).
	ExcludeCIDRs []string
	// StrictARP makes the node answer ARP for addresses of the asked interface
	// only (--ipvs-strict-arp).
	StrictARP bool
	// DetectLocalMode is how pods of this node are told (--detect-local-mode).
	DetectLocalMode string
	// ClusterCIDR are the pod ranges, comma separated, one a family
	// (--cluster-cidr).
	ClusterCIDR string
	// PodBridge and PodPrefix serve their modes (--pod-bridge-interface,
	// --pod-interface-name-prefix).
	PodBridge, PodPrefix string
	// MasqueradeAll rewrites the source of all traffic to cluster IPs
	// (--masquerade-all).
	MasqueradeAll bool
	// MasqueradeBit is the bit of the packet mark (--iptables-masquerade-bit).
	MasqueradeBit int
	// IPTables is the backend: auto, nft or legacy (--iptables-backend).
	IPTables string
	// NodePortAddresses are primary, localhost, all and CIDRs, mixed
	// (--nodeport-addresses, decision 29).
	NodePortAddresses []string
	// NodePortRange are the ports of NodePorts, as the API server is told
	// (--service-node-port-range).
	NodePortRange string
	// ExternalIPCIDRs hold the external IPs that may be served; empty allows all
	// (--external-ip-allowed-cidrs, decision 31).
	ExternalIPCIDRs []string
	// FeatureGates are Name=bool (--feature-gates).
	FeatureGates []string
	// NodeAddresses are those of this node where its Node object is not among the
	// manifests (--node-address of plan).
	NodeAddresses []string
	// RunDir is where the socket and the journal live (--run-dir).
	RunDir string
	// SyncPeriod is the time between two audits (--ipvs-sync-period).
	SyncPeriod time.Duration
	// LogLevel and LogFormat (--log-level, --logging-format).
	LogLevel, LogFormat string
}

// Defaults returns the settings that hold when nothing is given.
func Defaults() Settings {
	return Settings{
		ProxyMode:       "ipvs",
		DetectLocalMode: "ClusterCIDR",
		MasqueradeBit:   14,
		IPTables:        "auto",
		NodePortRange:   "30000-32767",
		RunDir:          "/run/kube-ipvs",
		SyncPeriod:      30 * time.Second,
		LogLevel:        "info",
		LogFormat:       "text",
	}
}
