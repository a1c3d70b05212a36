package config_test

import (
	"encoding/json"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kube-ipvs/kube-ipvs/internal/config"
	"github.com/kube-ipvs/kube-ipvs/internal/testkit/golden"
	"github.com/kube-ipvs/kube-ipvs/scheduler"
)

var meansTheSame = cmp.Options{byValue, cmpopts.IgnoreUnexported(config.Config{}), cmp.Comparer(func(a, b scheduler.Spec) bool { return a == b })}

// TestKubeadm checks that kubeadm's configuration file, nulls and empty fields included, and
// its two arguments start ipvs mode, and that the settings record an implied mode.
func TestKubeadm(t *testing.T) {
	l, err := loader(t, "--config=testdata/kubeadm.yaml", "--hostname-override=Worker-1").Load("ignored")
	if err != nil {
		t.Fatal(err)
	}
	want := loaded(t, "", "--cluster-cidr=10.244.0.0/16", "--kubeconfig=/var/lib/kube-proxy/kubeconfig.conf", "--hostname-override=worker-1").Config
	want.ConfigFile, want.ModeImplied = "testdata/kubeadm.yaml", true
	if diff := cmp.Diff(want, l.Config, meansTheSame); diff != "" {
		t.Errorf("not what the same flags mean (-want +got):\n%s", diff)
	}
	if len(l.Warnings)+len(l.Overrides) > 0 {
		t.Errorf("warnings %q, overrides %q, want none", l.Warnings, l.Overrides)
	}
}

// TestMeaningOfFields: every part of Config comes from where it should.
func TestMeaningOfFields(t *testing.T) {
	c := loaded(t, proxyHead+`bindAddress: 192.0.2.9
bindAddressHardFail: true
clientConnection: {kubeconfig: /k, acceptContentTypes: a, contentType: c, qps: 7.5, burst: 9}
configSyncPeriod: 1m
conntrack: {maxPerCore: 0, min: 1, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 2s, udpTimeout: 3s, udpStreamTimeout: 4s, tcpBeLiberal: true}
enableProfiling: true
featureGates: {AllowServiceExternalIPs: false}
mode: auto
iptables: {masqueradeAll: true, masqueradeBit: 0, localhostNodePorts: true, syncPeriod: 2m, minSyncPeriod: 6s}
ipvs: {syncPeriod: 1m, minSyncPeriod: 5s, scheduler: wlc, strictARP: true, tcpTimeout: 1h, tcpFinTimeout: 1m, udpTimeout: 2m, excludeCIDRs: [10.9.0.0/16]}
logging: {format: json}
oomScoreAdj: 0
detectLocalMode: BridgeInterface
detectLocal: {bridgeInterface: cni0}
clusterCIDR: not looked at
---
`+ownHead+`sourceDir: /m
runDir: /r
iptablesBackend: nft
onMissingIPVS: fail
watchNodes: own
drain: 90s
vipBinding: route
serviceCIDRs: [10.96.0.0/16, "fd00:96::1/112"]
readyzWatchBound: 1m
healthzWatchBound: 1h
announceTable: 100
announceLead: 7s
apiServerProbePeriod: 7s
serviceMetrics: 0
logLevel: warn
`, "--master=https://192.0.2.1", "--init-only", "--node-address=192.0.2.3").Config
	want := config.Config{
		Invocation:     config.Invocation{ConfigFile: c.ConfigFile, InitOnly: true, Unused: []string{"configSyncPeriod"}},
		Inputs:         config.Inputs{SourceDir: "/m", Client: config.Client{Kubeconfig: "/k", Master: "https://192.0.2.1", ContentType: "c", AcceptContentTypes: "a", QPS: 7.5, Burst: 9}, NodeName: "node-a", WatchNodes: config.WatchOwn, BindAddress: netip.MustParseAddr("192.0.2.9"), NodeAddresses: []netip.Addr{netip.MustParseAddr("192.0.2.3")}},
		ModeChoice:     config.ModeChoice{Mode: config.ModeAuto, OnMissing: config.OnMissingFail},
		VirtualServers: config.VirtualServers{Scheduler: scheduler.MustParse("wlc"), ExcludeCIDRs: []netip.Prefix{netip.MustParsePrefix("10.9.0.0/16")}, StrictARP: true, Timeouts: config.Timeouts{TCP: time.Hour, TCPFin: time.Minute, UDP: 2 * time.Minute}, Drain: 90 * time.Second, APIServerProbe: 7 * time.Second},
		Binding:        config.Binding{VIPBinding: config.VIPBindingRoute, ExternalBinding: config.ExternalBindingAuto, ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("fd00:96::/112")}},
		Announcing:     config.Announcing{AnnounceTable: 100, AnnounceLead: 7 * time.Second},
		SyncPeriods:    config.SyncPeriods{SyncPeriod: time.Minute, MinSyncPeriod: 5 * time.Second, IPTablesSyncPeriod: 2 * time.Minute, IPTablesMinSyncPeriod: 6 * time.Second},
		Netfilter:      config.Netfilter{DetectLocal: config.DetectLocal{Mode: "BridgeInterface", Interface: "cni0"}, MasqueradeAll: true, IPTables: "nft", Rules: config.RulesAuto},
		Exposure:       config.Exposure{LocalhostNodePorts: true, NodePorts: config.NodePortSelection{All: true}, NodePortRange: config.PortRange{First: 30000, Last: 32767}},
		Listeners:      config.Listeners{Healthz: "0.0.0.0:10256", Metrics: "127.0.0.1:10249", BindHardFail: true, Profiling: true, ReadyzWatchBound: time.Minute, HealthzWatchBound: time.Hour},
		ServiceLimits:  config.ServiceLimits{ServiceFrontends: 4096, ServiceRanges: 4096, ServiceRows: 1 << 18},
		Runtime:        config.Runtime{RunDir: "/r", LogLevel: "warn", LogFormat: "json"},
		Conntrack:      config.Conntrack{Min: 1, TCPCloseWait: 2 * time.Second, UDP: 3 * time.Second, UDPStream: 4 * time.Second, TCPBeLiberal: true},
	}
	if diff := cmp.Diff(want, c, meansTheSame); diff != "" {
		t.Errorf("config (-want +got):\n%s", diff)
	}
}

// TestDocuments: in which forms one or two documents can come.
func TestDocuments(t *testing.T) {
	proxy, own := proxyHead+"ipvs: {scheduler: wlc}\n", ownHead+"logLevel: warn\n"
	proxyJSON := `{"apiVersion":"kubeproxy.config.k8s.io/v1alpha1","kind":"KubeProxyConfiguration","ipvs":{"scheduler":"wlc"}}`
	ownJSON := `{"apiVersion":"kube-ipvs.io/v1alpha1","kind":"KubeIPVSConfiguration","logLevel":"warn"}`
	for _, tt := range []struct{ name, file, want string }{
		{"kube-proxy's alone", proxy, "wlc info"},
		{"ours alone", own, "rr warn"},
		{"both", proxy + "---\n" + own, "wlc warn"},
		{"both, ours first", "# ours\n---\n" + own + "---\n" + proxy, "wlc warn"},
		{"separators around", "---\n" + proxy + "---\n---\n# nothing\n---\n" + own + "---\n", "wlc warn"},
		{"lines of Windows", strings.ReplaceAll(proxy+"---\n"+own, "\n", "\r\n"), "wlc warn"},
		{"JSON", proxyJSON, "wlc info"},
		{"JSON after JSON", proxyJSON + "\n" + ownJSON, "wlc warn"},
		{"JSON and YAML", proxyJSON + "\n---\n" + own, "wlc warn"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := loaded(t, tt.file)
			if got := l.Config.Scheduler.Name() + " " + l.Config.LogLevel; got != tt.want || l.Warnings != nil {
				t.Errorf("read as %q with warnings %q, want %q", got, l.Warnings, tt.want)
			}
		})
	}
}

// TestWarnings: a file that kube-proxy accepts starts here, and each ignored setting is one line.
func TestWarnings(t *testing.T) {
	for _, tt := range []struct {
		name, file string
		args       []string
		want       []string
	}{
		{"unknown field", proxyHead + "ipvs: {schedular: rr, Scheduler: wlc}\nresourceContainer: /kube-proxy\n", nil, []string{
			"ipvs.Scheduler: unknown field, is ipvs.scheduler meant?; ignored, as by kube-proxy", "ipvs.schedular: unknown field; ignored, as by kube-proxy",
			"resourceContainer: unknown field; ignored, as by kube-proxy"}},
		{"field of ours", proxyHead + "watchNodes: own\n", nil, []string{"watchNodes: unknown field, is watchNodes of KubeIPVSConfiguration meant?; ignored, as by kube-proxy"}},
		{"field twice", proxyHead + "clusterCIDR: 10.0.0.0/8\nclusterCIDR: 10.0.0.0/16\n", nil, []string{`FILE: document 1: line 4: key "clusterCIDR" already set in map; the last one is used`}},
		{"flags without effect", "", []string{"--config-sync-period=1m", "--vmodule=a=1", "--boot-id-file=/x", "--log_json_split_stream"},
			[]string{"settings without effect in kube-ipvs: --config-sync-period, --vmodule, --log-json-split-stream, --boot-id-file"}},
		{"fields without effect", proxyHead + "winkernel: {sourceVip: 192.0.2.1}\nnftables: {masqueradeBit: 14, syncPeriod: 1m}\nportRange: ''\n", nil,
			[]string{"settings without effect in kube-ipvs: nftables.syncPeriod, winkernel.sourceVip"}},
		{"no IPVS and no way out of it", "", []string{"--proxy-mode=auto", "--on-missing-ipvs=fail"}, []string{"--on-missing-ipvs=fail: without effect with --proxy-mode=auto"}},
		{"the same in a file", proxyHead + "mode: iptables\n---\n" + ownHead + "onMissingIPVS: fail\n", nil,
			[]string{"onMissingIPVS: fail: without effect with mode: iptables"}},
		{"bound that flaps", "", []string{"--readyz-watch-bound=30s"},
			[]string{"--readyz-watch-bound=30s: shorter than the one minute between bookmarks of an idle watch, so /readyz will fail at times"}},
		{"gates of other programs", proxyHead + "featureGates: {Teleport: true, KubeProxyIPVS: true}\n", []string{"--feature-gates=Beam=false,AllAlpha=false"},
			[]string{"feature gates that kube-ipvs does not have, ignored: Beam, Teleport"}},
		{"deprecated", "", []string{"--healthz-port=1", "--metrics-port=0"}, []string{"--healthz-port is deprecated, use --healthz-bind-address", "--metrics-port is deprecated, use --metrics-bind-address"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := loaded(t, tt.file, tt.args...)
			for i, w := range l.Warnings {
				if rest, ok := strings.CutPrefix(w, l.Config.ConfigFile+":"); ok {
					l.Warnings[i] = "FILE:" + rest
				}
			}
			if diff := cmp.Diff(tt.want, l.Warnings); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
		})
	}
}

// TestOverrides: a flag is reported only where its value differs from the file's.
func TestOverrides(t *testing.T) {
	l := loaded(t, proxyHead+"ipvs: {scheduler: wlc, strictARP: true}\nfeatureGates: {AllowServiceExternalIPs: false, AllAlpha: true}\nhealthzBindAddress: 192.0.2.1\n",
		"--ipvs_scheduler=wlc", "--ipvs-strict-arp=false", "--feature-gates=AllowServiceExternalIPs=true", "--cluster-cidr=10.0.0.0/8", "--healthz-port=0", "--node-address=192.0.2.7")
	if diff := cmp.Diff([]string{"--feature-gates", "--healthz-port", "--ipvs-strict-arp"}, l.Overrides); diff != "" {
		t.Errorf("overrides (-want +got):\n%s", diff)
	}
	if c := l.Config; c.StrictARP || !c.AllowExternalIPs || c.Healthz != "" {
		t.Errorf("the file won: %+v", c)
	}
}

// TestMistakesLeaveWarnings: an operator who mends a file sees both.
func TestMistakesLeaveWarnings(t *testing.T) {
	l, err := loader(t, "--config", fileWith(t, proxyHead+"mode: nftables\nmood: good\n")).Load("node-a")
	if err == nil || len(l.Warnings) != 1 {
		t.Errorf("error %v, warnings %q", err, l.Warnings)
	}
}

// TestRoundTrip: a file written with --write-config-to means the same when it is
// read, and writes the same again.
func TestRoundTrip(t *testing.T) {
	for _, tt := range []struct {
		name, file string
		args       []string
	}{
		{"defaults", "", nil},
		{"flags", "", []string{"--ipvs-scheduler=mh", "--bind-address=::", "--nodeport-addresses=primary,10.0.0.0/8", "--feature-gates=AllowServiceExternalIPs=false", "-v=5",
			"--conntrack-max-per-core=0", "--oom-score-adj=0", "--healthz-watch-bound=1h", "--watch-nodes=own", "--metrics-port=1", "--kube-api-qps=0.5", "--ipvs-tcp-timeout=15m",
			"--proxy-mode=auto", "--iptables-localhost-nodeports", "--iptables-sync-period=1m", "--iptables-min-sync-period=1s"}},
		{"file and flags", proxyHead + "ipvs: {scheduler: wlc}\nmode: iptables\n", []string{"--proxy-mode=ipvs", "--log-level=error", "--source-dir=/m"}},
		{"no way out", proxyHead + "mode: ipvs\n", []string{"--on-missing-ipvs=fail"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			first := loaded(t, tt.file, tt.args...).Config
			text, err := first.YAML()
			if err != nil {
				t.Fatal(err)
			}
			l := loaded(t, string(text))
			again, err := l.Config.YAML()
			if err != nil || string(again) != string(text) || len(l.Warnings) > 0 {
				t.Errorf("error %v, warnings %q, written again (-first +again):\n%s", err, l.Warnings, cmp.Diff(string(text), string(again)))
			}
			l.Config.ConfigFile = first.ConfigFile
			if diff := cmp.Diff(first, l.Config, meansTheSame); diff != "" {
				t.Errorf("means something else (-first +again):\n%s", diff)
			}
		})
	}
	if text, err := loaded(t, "", "--healthz-port=0").Config.YAML(); err == nil {
		t.Errorf("a listener that is off is written as\n%s", text)
	}
}

// TestConfigz: the body of /configz, as it is by default and after a reload.
func TestConfigz(t *testing.T) {
	before, now := loaded(t, "", "--oom-score-adj=-998").Config, loaded(t, proxyHead+"ipvs: {scheduler: wlc}\noomScoreAdj: 0\n").Config
	var b strings.Builder
	for _, c := range []config.Config{before, config.Live(before, now)} {
		text, err := c.Configz()
		if err != nil {
			t.Fatal(err)
		}
		var indented any
		if err := json.Unmarshal(text, &indented); err != nil {
			t.Fatal(err)
		}
		enc := json.NewEncoder(&b)
		enc.SetIndent("", "  ")
		if err := enc.Encode(indented); err != nil {
			t.Fatal(err)
		}
	}
	golden.Check(t, "configz.json", b.String())
}

// TestReloads: the same loader reads the file again, with the same flags over it.
func TestReloads(t *testing.T) {
	path := fileWith(t, proxyHead+"ipvs: {scheduler: wlc}\n")
	l := loader(t, "--config", path, "--ipvs-strict-arp")
	for _, tt := range []struct{ file, want string }{
		{proxyHead + "ipvs: {scheduler: wlc}\n", "wlc"}, {proxyHead + "ipvs: {scheduler: [\n", ""}, {proxyHead + "ipvs: {scheduler: sh}\n", "sh"}, {proxyHead, "rr"},
	} {
		if err := os.WriteFile(path, []byte(tt.file), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := l.Load("node-a")
		if tt.want == "" {
			if err == nil {
				t.Error("a broken file is taken")
			}
			continue
		}
		if err != nil || got.Config.Scheduler.Name() != tt.want || !got.Config.StrictARP {
			t.Errorf("scheduler %s, strict ARP %t, error %v, want %s", got.Config.Scheduler, got.Config.StrictARP, err, tt.want)
		}
	}
}
