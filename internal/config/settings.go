package config

import (
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeproxy "k8s.io/kube-proxy/config/v1alpha1"
)

// Settings are the settings as written, in a file and on the command line. Meaning,
// defaults and limits are those of kube-proxy v1.37 for each setting that it has. Begin
// with Defaults: an empty Settings means nothing.
type Settings struct {
	// Proxy and Own are the two documents of the file (--config).
	Proxy kubeproxy.KubeProxyConfiguration
	Own   KubeIPVSConfiguration

	// The following settings exist only on the command line.

	// ConfigFile is the file that the documents come from (--config), WriteConfigTo
	// the one that they go to instead of running (--write-config-to).
	ConfigFile, WriteConfigTo string
	// Cleanup and InitOnly do one thing and end (--cleanup, --init-only).
	Cleanup, InitOnly bool
	// Master is the URL of the API server (--master).
	Master string
	// FeatureGates are Name=bool and win over those of the file (--feature-gates).
	FeatureGates []string
	// HealthzPort and MetricsPort are deprecated: the ports of the two listeners,
	// 0 for none (--healthz-port, --metrics-port).
	HealthzPort, MetricsPort int32
	// NodeAddresses are those of this node where its Node object is not among the
	// manifests (--node-address of plan).
	NodeAddresses []string

	// given are the flags that were on the command line, said the fields that the
	// file has a value for. Mistakes are named by them.
	given, said map[string]bool
	// noMode: the file has a document of kube-proxy that leaves the mode empty.
	noMode bool
	// unread holds flags that files of cadvisor were once named by.
	unread [2]string
}

// Defaults returns the settings that hold when nothing is given.
func Defaults() Settings {
	s := Settings{HealthzPort: healthzPort, MetricsPort: metricsPort}
	s.complete()
	s.Proxy.BindAddress = "0.0.0.0"
	s.Proxy.HealthzBindAddress = "0.0.0.0:10256"
	s.Proxy.MetricsBindAddress = "127.0.0.1:10249"
	return s
}

// complete gives what a file left empty its default. Where the two listeners
// listen follows from the bind address and is left for Check.
func (s *Settings) complete() {
	s.Proxy.TypeMeta = metav1.TypeMeta{APIVersion: kubeproxy.SchemeGroupVersion.String(), Kind: proxyKind}
	s.Own.TypeMeta = metav1.TypeMeta{APIVersion: OwnAPIVersion, Kind: OwnKind}
	completeProxy(&s.Proxy)
	completeTimes(&s.Proxy)
	orElse(&s.Own.RunDir, "/run/kube-ipvs")
	orElse(&s.Own.IPTablesBackend, "auto")
	orElse(&s.Own.Rules, string(RulesAuto))
	orElse(&s.Own.ServiceNodePortRange, "30000-32767")
	orElse(&s.Own.WatchNodes, WatchAuto)
	orElse(&s.Own.OnMissingIPVS, string(OnMissingIPTables))
	orElse(&s.Own.VIPBinding, string(VIPBindingAddress))
	orElse(&s.Own.ExternalBinding, string(ExternalBindingAuto))
	orElse(&s.Own.AnnounceTable, new(int32(0)))
	orElse(&s.Own.AnnounceLead, &metav1.Duration{Duration: 5 * time.Second})
	orElse(&s.Own.Drain, &metav1.Duration{Duration: 30 * time.Second})
	orElse(&s.Own.ReadyzWatchBound, &metav1.Duration{Duration: 2 * time.Minute})
	orElse(&s.Own.HealthzWatchBound, &metav1.Duration{})
	orElse(&s.Own.APIServerProbePeriod, &metav1.Duration{Duration: 10 * time.Second})
	orElse(&s.Own.ServiceMetrics, new(int32(500)))
	orElse(&s.Own.ServiceFrontends, new(int32(4096)))
	orElse(&s.Own.ServiceRows, new(int32(1<<18)))
	orElse(&s.Own.ServiceSourceRanges, new(int32(4096)))
}

func completeProxy(p *kubeproxy.KubeProxyConfiguration) {
	orElse(&p.Mode, kubeproxy.ProxyMode(ModeIPVS))
	orElse(&p.DetectLocalMode, "ClusterCIDR")
	orElse(&p.ClientConnection.ContentType, "application/vnd.kubernetes.protobuf")
	orElse(&p.ClientConnection.QPS, 5)
	orElse(&p.ClientConnection.Burst, 10)
	orElse(&p.Logging.Format, "text")
	if p.Logging.FlushFrequency.Duration.Duration == 0 {
		p.Logging.FlushFrequency.Duration.Duration = 5 * time.Second
		p.Logging.FlushFrequency.SerializeAsString = true
	}
	for _, size := range []*resource.QuantityValue{&p.Logging.Options.Text.InfoBufferSize, &p.Logging.Options.JSON.InfoBufferSize} {
		if size.IsZero() { // as it is written, so that it reads the same
			*size = resource.QuantityValue{Quantity: resource.MustParse("0")}
		}
	}
	orElse(&p.IPTables.MasqueradeBit, new(int32(14)))
	orElse(&p.IPTables.LocalhostNodePorts, new(false)) // kube-proxy's is true
	orElse(&p.NFTables.MasqueradeBit, new(int32(14)))
	orElse(&p.OOMScoreAdj, new(int32(-999)))
	orElse(&p.Conntrack.MaxPerCore, new(int32(32*1024)))
	orElse(&p.Conntrack.Min, new(int32(128*1024)))
}

// completeTimes fills in the default periods, except minSyncPeriod of ipvs and iptables,
// which is 0 unless set (internal/DECISIONS.md, No delay between changes).
func completeTimes(p *kubeproxy.KubeProxyConfiguration) {
	second := metav1.Duration{Duration: time.Second}
	half := metav1.Duration{Duration: 30 * time.Second}
	orElse(&p.IPVS.SyncPeriod, half)
	orElse(&p.IPTables.SyncPeriod, half)
	orElse(&p.NFTables.SyncPeriod, half)
	orElse(&p.NFTables.MinSyncPeriod, second)
	orElse(&p.ConfigSyncPeriod, metav1.Duration{Duration: 15 * time.Minute})
	orElse(&p.Conntrack.TCPEstablishedTimeout, &metav1.Duration{Duration: 24 * time.Hour})
	orElse(&p.Conntrack.TCPCloseWaitTimeout, &metav1.Duration{Duration: time.Hour})
}

// orElse gives an empty setting a value.
func orElse[T comparable](to *T, value T) {
	var empty T
	if *to == empty {
		*to = value
	}
}

// name is how a person knows a setting: as the flag it was given by, or where it is
// in the file. Without a file there are only flags.
func (s *Settings) name(flag string) string {
	row, known := byFlag[flag]
	if !known || row.field == "" || s.given[flag] || s.ConfigFile == "" {
		return "--" + flag
	}
	return row.field
}

// with is a setting and its value, written as it would be where it came from.
func (s *Settings) with(flag, value string) string {
	if name := s.name(flag); name[0] != '-' {
		return name + ": " + value
	}
	return "--" + flag + "=" + value
}

// clone shares no memory that may change.
func (s *Settings) clone() Settings {
	out := *s
	out.Proxy = *s.Proxy.DeepCopy()
	return out
}
