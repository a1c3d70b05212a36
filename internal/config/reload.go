package config

import (
	"reflect"
	"slices"
	"strings"
)

// When a change of a setting takes effect.
type effect int

const (
	atStart effect = iota // asks for a restart
	atOnce                // the running agent takes it
	never                 // is no setting: about this process and its command line
)

// meaning is, for one field of Config, when a change of it takes effect, and how a
// person knows what it follows from.
type meaning struct {
	of   string // path of the field in Config
	name string // path of the setting in the file
	when effect
}

// meanings holds every field of Config, and when a change of it takes effect
// (internal/DECISIONS.md, Configuration reload).
var meanings = []meaning{
	{"Scheduler", "ipvs.scheduler", atOnce},
	{"ExcludeCIDRs", "ipvs.excludeCIDRs", atOnce},
	{"StrictARP", "ipvs.strictARP", atOnce},
	{"Timeouts.TCP", "ipvs.tcpTimeout", atOnce},
	{"Timeouts.TCPFin", "ipvs.tcpFinTimeout", atOnce},
	{"Timeouts.UDP", "ipvs.udpTimeout", atOnce},
	{"Timeouts.Recommended", "ipvsTimeouts", atOnce},
	{"Drain", "drain", atOnce},
	{"APIServerProbe", "apiServerProbePeriod", atOnce},
	{"NodePorts", "nodePortAddresses", atOnce},
	{"ExternalIPCIDRs", "externalIPAllowedCIDRs", atOnce},
	{"AllowExternalIPs", "featureGates", atOnce},
	{"ExternalBinding", "externalBinding", atOnce},
	{"LogLevel", "logLevel", atOnce},
	{"ReadyzWatchBound", "readyzWatchBound", atOnce},
	{"HealthzWatchBound", "healthzWatchBound", atOnce},

	{"SourceDir", "sourceDir", atStart},
	{"RunDir", "runDir", atStart},
	{"NodeName", "hostnameOverride", atStart},
	{"NodeAddresses", "--node-address", atStart},
	{"BindAddress", "bindAddress", atStart},
	{"Client.Kubeconfig", "clientConnection.kubeconfig", atStart},
	{"Client.Master", "--master", atStart},
	{"Client.ContentType", "clientConnection.contentType", atStart},
	{"Client.AcceptContentTypes", "clientConnection.acceptContentTypes", atStart},
	{"Client.QPS", "clientConnection.qps", atStart},
	{"Client.Burst", "clientConnection.burst", atStart},
	{"WatchNodes", "watchNodes", atStart},
	{"Mode", "mode", atStart},
	{"OnMissing", "onMissingIPVS", atStart},
	{"VIPBinding", "vipBinding", atStart},
	{"ServiceCIDRs", "serviceCIDRs", atStart},
	{"AnnounceTable", "announceTable", atStart},
	{"AnnounceLead", "announceLead", atStart},
	{"SyncPeriod", "ipvs.syncPeriod", atStart},
	{"MinSyncPeriod", "ipvs.minSyncPeriod", atStart},
	{"IPTablesSyncPeriod", "iptables.syncPeriod", atStart},
	{"IPTablesMinSyncPeriod", "iptables.minSyncPeriod", atStart},
	{"DetectLocal.Mode", "detectLocalMode", atStart},
	{"DetectLocal.ClusterCIDRs", "clusterCIDR", atStart},
	{"DetectLocal.Interface", "detectLocal", atStart},
	{"MasqueradeAll", "iptables.masqueradeAll", atStart},
	{"MasqueradeBit", "iptables.masqueradeBit", atStart},
	{"IPTables", "iptablesBackend", atStart},
	{"Rules", "rules", atStart},
	{"NodePortRange", "serviceNodePortRange", atStart},
	{"LocalhostNodePorts", "iptables.localhostNodePorts", atStart},
	{"Healthz", "healthzBindAddress", atStart},
	{"Metrics", "metricsBindAddress", atStart},
	{"BindHardFail", "bindAddressHardFail", atStart},
	{"Profiling", "enableProfiling", atStart},
	{"ServiceMetrics", "serviceMetrics", atStart},
	{"ServiceFrontends", "serviceFrontends", atOnce},
	{"ServiceRows", "serviceRows", atOnce},
	{"ServiceRanges", "serviceSourceRanges", atOnce},
	{"DNSServices", "dnsServices", atStart},
	{"Conntrack.MaxPerCore", "conntrack.maxPerCore", atStart},
	{"Conntrack.Min", "conntrack.min", atStart},
	{"Conntrack.TCPEstablished", "conntrack.tcpEstablishedTimeout", atStart},
	{"Conntrack.TCPCloseWait", "conntrack.tcpCloseWaitTimeout", atStart},
	{"Conntrack.UDP", "conntrack.udpTimeout", atStart},
	{"Conntrack.UDPStream", "conntrack.udpStreamTimeout", atStart},
	{"Conntrack.TCPBeLiberal", "conntrack.tcpBeLiberal", atStart},
	{"OOMScoreAdj", "oomScoreAdj", atStart},
	{"LogFormat", "logging.format", atStart},

	{"ConfigFile", "--config", never},
	{"WriteConfigTo", "--write-config-to", never},
	{"Cleanup", "--cleanup", never},
	{"InitOnly", "--init-only", never},
	{"Unused", "", never},
	{"ModeImplied", "", never}, // a note of the start
}

// Compare names the settings that mean something else now: those that the running
// agent takes, and those that ask for a restart.
func Compare(before, now Config) (live, restart []string) {
	for _, m := range meanings {
		if m.when == never || reflect.DeepEqual(m.in(&before).Interface(), m.in(&now).Interface()) {
			continue
		}
		if m.when == atOnce {
			live = append(live, m.name)
		} else {
			restart = append(restart, m.name)
		}
	}
	return live, restart
}

// Live is before with what the running agent takes from now, except for what is named
// as Compare does.
func Live(before, now Config, except ...string) Config {
	before.effective = before.effective.clone()
	for _, m := range meanings {
		if m.when != atOnce || slices.Contains(except, m.name) {
			continue
		}
		m.in(&before).Set(m.in(&now))
		row := byField[m.name]
		to, from := reflect.ValueOf(row.at(&before.effective)), reflect.ValueOf(row.at(&now.effective))
		to.Elem().Set(from.Elem())
	}
	before.Unused = slices.Clone(now.Unused)
	return before
}

// in finds the field in a Config.
func (m meaning) in(c *Config) reflect.Value {
	v := reflect.ValueOf(c).Elem()
	for name := range strings.SplitSeq(m.of, ".") {
		v = v.FieldByName(name)
	}
	return v
}
