package config_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kube-ipvs/kube-ipvs/internal/testkit/golden"
)

// input is a file and a command line with a mistake.
type input struct {
	name string
	args []string // without --config, which is added where there is a file
	file string   // "" for none
}

// in is a field in kube-proxy's document, own in ours.
func in(name, fields string) input  { return input{name: name, file: proxyHead + fields} }
func own(name, fields string) input { return input{name: name, file: ownHead + fields} }

func line(name string, args ...string) input { return input{name: name, args: args} }

var badFiles = []input{
	{name: "empty file", file: "\n"},
	{name: "comments alone", file: "# to do\n---\n# nothing\n"},
	{name: "no kind", file: "mode: ipvs\n"},
	{name: "no version", file: "kind: KubeProxyConfiguration\n"},
	{name: "wrong kind", file: "apiVersion: v1\nkind: ConfigMap\ndata: {}\n"},
	{name: "version to come", file: "apiVersion: kubeproxy.config.k8s.io/v1beta1\nkind: KubeProxyConfiguration\n"},
	{name: "own version to come", file: "apiVersion: kube-ipvs.io/v1\nkind: KubeIPVSConfiguration\n"},
	{name: "the same kind twice", file: proxyHead + "---\n" + ownHead + "---\n" + proxyHead},
	{name: "a kind beside", file: proxyHead + "---\napiVersion: v1\nkind: Service\n"},
	{name: "not YAML", file: proxyHead + "mode: [ipvs\n"},
	{name: "tabs", file: proxyHead + "ipvs:\n\tscheduler: rr\n"},
	{name: "a list", file: "- kind: KubeProxyConfiguration\n"},
	{name: "a word", file: "ipvs\n"},
	{name: "broken JSON", file: `{"apiVersion": "kube-ipvs.io/v1alpha1", "kind": "KubeIPVSConfiguration"`},
	{name: "JSON and more", file: `{"apiVersion": "kube-ipvs.io/v1alpha1", "kind": "KubeIPVSConfiguration"} runDir: /x`},
	{name: "text behind the separator", file: proxyHead + "--- mode\n"},
}

var badFields = []input{
	own("unknown own field", "logLevels: debug\n"),
	own("own field in the wrong case", "rundir: /run\n"),
	own("field of the other document", "scheduler: wlc\n"),
	own("own field twice", "logLevel: debug\nlogLevel: info\n"),
	in("scheduler of the wrong type", "ipvs: {scheduler: 5}\n"),
	in("group of the wrong type", "ipvs: wlc\n"),
	in("bool of the wrong type", "ipvs: {strictARP: \"true\"}\n"),
	in("duration without a unit", "ipvs: {syncPeriod: 30}\n"),
	in("duration that is none", "conntrack: {tcpEstablishedTimeout: a day}\n"),
	in("number too large", "conntrack: {maxPerCore: 5000000000}\n"),
	in("number with a fraction", "oomScoreAdj: 1.5\n"),
	in("rate that is none", "clientConnection: {qps: fast}\n"),
	in("list of the wrong type", "nodePortAddresses: 10.0.0.0/8\n"),
	in("gate that is neither", "featureGates: {KubeProxyIPVS: perhaps}\n"),
	in("vmodule of the wrong type", "logging: {vmodule: [5]}\n"),
	in("mode nftables", "mode: nftables\n"),
	in("mode that is none", "mode: userspace\n"),
	in("mode of the wrong type", "mode: 5\n"),
	in("scheduler", "ipvs: {scheduler: best}\n"),
	in("excluded range", "ipvs: {excludeCIDRs: [10.0.0.0/8, 10.0.0.300/8]}\n"),
	in("min beyond sync", "ipvs: {minSyncPeriod: 2m}\n"),
	in("min below 0", "ipvs: {minSyncPeriod: -1s}\n"),
	in("sync below a second", "ipvs: {syncPeriod: 10ms}\n"),
	in("min beyond sync in iptables mode", "iptables: {minSyncPeriod: 2m}\n"),
	in("min below 0 in iptables mode", "iptables: {minSyncPeriod: -1s}\n"),
	in("sync below a second in iptables mode", "iptables: {syncPeriod: 10ms}\n"),
	in("localhost of the wrong type", "iptables: {localhostNodePorts: \"yes\"}\n"),
	in("timeouts", "ipvs: {tcpTimeout: -1s, tcpFinTimeout: 500ms, udpTimeout: -5m}\n"),
	in("conntrack", "conntrack: {maxPerCore: -1, min: -2, tcpEstablishedTimeout: -1s, tcpCloseWaitTimeout: -1s, udpTimeout: -1s, udpStreamTimeout: 1ms}\n"),
	in("bit", "iptables: {masqueradeBit: 32}\n"),
	in("score", "oomScoreAdj: -1001\n"),
	in("burst", "clientConnection: {burst: -1}\n"),
	in("resync", "configSyncPeriod: -1m\n"),
	in("name of the node", "hostnameOverride: worker_1\n"),
	in("blank name", "hostnameOverride: \" \"\n"),
	in("bind address", "bindAddress: eth0\n"),
	in("bind address with a port", "bindAddress: 192.0.2.1:80\n"),
	in("health address", "healthzBindAddress: localhost:10256\n"),
	in("health port", "healthzBindAddress: 0.0.0.0:70000\n"),
	in("metrics address in brackets alone", "metricsBindAddress: \"[::1]\"\n"),
	in("one port for both", "metricsBindAddress: 0.0.0.0:10256\n"),
	in("one port for both, on one address of all", "healthzBindAddress: \"[::]:9000\"\nmetricsBindAddress: 127.0.0.1:9000\n"),
	in("local mode", "detectLocalMode: Guess\n"),
	in("bridge without a name", "detectLocalMode: BridgeInterface\n"),
	in("prefix too long", "detectLocalMode: InterfaceNamePrefix\ndetectLocal: {interfaceNamePrefix: cali0123456789abc}\n"),
	in("pod range", "clusterCIDR: 10.244.0.0\n"),
	in("pod ranges of one family", "clusterCIDR: 10.244.0.0/16,10.245.0.0/16\n"),
	in("pod ranges, three", "clusterCIDR: 10.244.0.0/16,fd00::/64,fd01::/64\n"),
	in("node port addresses", "nodePortAddresses: [primary, Localhost, 192.0.2.1]\n"),
	in("log format", "logging: {format: xml}\n"),
	own("log level", "logLevel: loud\n"),
	own("run directory", "runDir: run\n"),
	own("backend", "iptablesBackend: ebpf\n"),
	own("what to do without IPVS", "onMissingIPVS: die\n"),
	own("what to do without IPVS, of the wrong type", "onMissingIPVS: false\n"),
	own("port range", "serviceNodePortRange: 32767-30000\n"),
	own("external IPs", "externalIPAllowedCIDRs: [192.0.2.0/24, all]\n"),
	own("binding", "vipBinding: routes\n"),
	own("external binding", "externalBinding: bound\n"),
	own("routes to nowhere", "vipBinding: route\nsourceDir: /srv\n"),
	own("routes to what is no range of Services", "vipBinding: route\nserviceCIDRs: [10.96.0.0, 0.0.0.0/0, 127.0.0.0/8, \"fe80::/64\"]\n"),
	{name: "routes to pods", file: proxyHead + "clusterCIDR: 10.244.0.0/16\n---\n" + ownHead + "vipBinding: route\nserviceCIDRs: [10.96.0.0/16, 10.240.0.0/12]\n"},
	own("nodes to watch", "watchNodes: some\n"),
	own("drain beyond an hour", "drain: 61m\n"),
	own("fewer metrics by Service than none", "serviceMetrics: -1\n"),
	own("no frontends at all", "serviceFrontends: 0\n"),
	own("no source ranges at all", "serviceSourceRanges: 0\n"),
	own("DNS Services without a namespace", "dnsServices: [kube-system/kube-dns, dns, /dns, a/b/c]\n"),
	own("drain below 0", "drain: -1s\n"),
	own("drain that is no duration", "drain: short\n"),
	own("idle times of no profile", "ipvsTimeouts: 2h\n"),
	{name: "a profile and a time", file: proxyHead + "ipvs: {tcpTimeout: 1h}\n---\n" + ownHead + "ipvsTimeouts: recommended\n"},
	in("the word where a time belongs", "ipvs: {tcpTimeout: recommended}\n"),
	own("the period of probes", "apiServerProbePeriod: 1ms\n"),
	own("a table of the kernel", "announceTable: 254\n"),
	own("a table of the agent", "announceTable: 7373\n"),
	own("no table, and a lead below 0", "announceTable: -1\nannounceLead: -1s\n"),
	own("a lead beyond a minute", "announceLead: 61s\n"),
	own("watch bounds", "readyzWatchBound: 0s\nhealthzWatchBound: 1ms\n"),
}

var badLines = []input{
	line("mode given", "--proxy-mode=nftables"),
	line("mode given that is none", "--proxy-mode=IPVS"),
	line("what to do without IPVS given", "--on-missing-ipvs=ipvs"),
	line("scheduler given", "--ipvs-scheduler=best"),
	line("min beyond sync given", "--ipvs-min-sync-period=1m"),
	line("min beyond sync given for iptables mode", "--iptables-min-sync-period=1m"),
	line("one port for both given", "--metrics-bind-address=0.0.0.0", "--metrics-port=10256"),
	line("port given that is none", "--healthz-port=70000"),
	line("drain given beyond an hour", "--drain=2h"),
	line("idle time below a second given", "--ipvs-tcp-timeout=1ms"),
	line("rate given that is none", "--kube-api-qps=NaN"),
	line("bridge without a name given", "--detect-local-mode=BridgeInterface"),
	line("gates given", "--feature-gates=Teleport=true,KubeProxyIPVS=perhaps"),
	line("routes to nowhere given", "--vip-binding=route", "--source-dir=/srv"),
	line("a table of the kernel given", "--announce-table=255"),
	line("many at once", "--ipvs-scheduler=best", "--oom-score-adj=5000", "--run-dir=run", "--node-address=worker"),
	{name: "flag is wrong, file is right", args: []string{"--ipvs-scheduler=best"}, file: proxyHead + "ipvs: {scheduler: wlc}\n"},
	{name: "mode of the flag, not of the file", args: []string{"--proxy-mode=nftables"}, file: proxyHead + "mode: ipvs\n"},
	{name: "flag and file are wrong", args: []string{"--ipvs-min-sync-period=1h"}, file: proxyHead + "ipvs: {syncPeriod: 10m, scheduler: best}\nclusterCIDR: x\n---\n" + ownHead + "level: 5\n"},
	{name: "each by itself, all at once", file: proxyHead + "oomScoreAdj: low\nipvs: {syncPeriod: soon}\nmode: nftables\nclusterCIDR: x\n---\n" + ownHead + "logLevel: 1\nwatchNodes: some\n"},
}

// TestMistakes: the messages for wrong settings. They are in
// testdata/mistakes.txt.
func TestMistakes(t *testing.T) {
	var b strings.Builder
	seen := 0
	for _, list := range [][]input{badFiles, badFields, badLines} {
		for _, tt := range list {
			seen++
			t.Run(tt.name, func(t *testing.T) { b.WriteString(mistakes(t, tt)) })
		}
	}
	if seen < 40 {
		t.Errorf("%d inputs, want 40 at least", seen)
	}
	golden.Check(t, "mistakes.txt", b.String())
}

// mistakes prints the input and what is said to it, as at a terminal.
func mistakes(t *testing.T, in input) string {
	args, path := in.args, ""
	if in.file != "" {
		path = fileWith(t, in.file)
		args = append([]string{"--config", path}, args...)
	}
	l, err := loader(t, args...).Load("node-a")
	if err == nil {
		t.Errorf("no mistake found, %+v", l)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "=== %s\n$ kube-ipvs %s\n", in.name, strings.Join(args, " "))
	for text := range strings.Lines(in.file) {
		fmt.Fprintf(&b, "  | %s", strings.TrimSuffix(text, "\n")+"\n")
	}
	fmt.Fprintf(&b, "%v\n\n", err)
	if path == "" {
		return b.String()
	}
	return strings.ReplaceAll(b.String(), path, "FILE")
}

// TestFileThatCannotBeRead: the trouble is named, and the flag that leads to it.
func TestFileThatCannotBeRead(t *testing.T) {
	for _, tt := range []struct{ name, path, want string }{
		{"not there", "/nonexistent/config.conf", "--config: open /nonexistent/config.conf: no such file or directory"},
		{"a directory", "/", "--config: read /: is a directory"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := loader(t, "--config", tt.path).Load("node-a")
			if err == nil || err.Error() != tt.want {
				t.Errorf("error %v, want %s", err, tt.want)
			}
		})
	}
}
