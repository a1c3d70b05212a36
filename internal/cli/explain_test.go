package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/spf13/pflag"
	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/agent"
	"github.com/kube-ipvs/kube-ipvs/internal/catalog"
	"github.com/kube-ipvs/kube-ipvs/internal/config"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/iptables"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/netfilter"
	"github.com/kube-ipvs/kube-ipvs/internal/explain"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/link"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/link/linktest"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules/rulestest"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver/vservertest"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/source/file"
	"github.com/kube-ipvs/kube-ipvs/internal/telemetry"
	"github.com/kube-ipvs/kube-ipvs/internal/testkit/golden"
	"github.com/kube-ipvs/kube-ipvs/internal/testkit/poll"
	"github.com/kube-ipvs/kube-ipvs/internal/wiring"
	"github.com/kube-ipvs/kube-ipvs/ipset"
	"github.com/kube-ipvs/kube-ipvs/ipset/ipsettest"
)

// fakeNode is a running agent over fakes, which does not look for drift, so damage stays.
type fakeNode struct {
	*testing.T
	config  config.Config
	servers *vservertest.Fake
	sets    *ipsettest.Fake
	rules   *rulestest.Fake
	links   *linktest.Fake
	loop    *agent.Agent
}

func (n *fakeNode) deps() ipvs.Deps {
	return ipvs.Deps{Servers: n.servers, Sets: n.sets, Rules: n.rules, Links: n.links, Announced: n.links}
}

// readers are those of a verb on this node.
func (n *fakeNode) readers() readOnlyKernel {
	both := model.Families()
	return readOnlyKernel{deps: n.deps(), host: n.links, families: both[:], liberal: func(context.Context) bool { return true }}
}

// onNode runs an agent with manifests until all of them is in the kernel, and a test after.
func onNode(t *testing.T, manifests string, flags []string, test func(n *fakeNode)) {
	t.Helper()
	dir := directory(t, map[string]string{"all.yaml": manifests})
	synctest.Test(t, func(t *testing.T) {
		n := &fakeNode{T: t, config: parsed(t, append([]string{"--source-dir=" + dir, "--cluster-cidr=10.244.0.0/16"}, flags...)),
			servers: vservertest.NewFake(), sets: ipsettest.New(), links: linktest.New(),
			rules: rulestest.New(rules.Options{Owned: netfilter.Owned, Families: []rules.Family{rules.IPv4, rules.IPv6}})}
		n.links.AddElsewhere(netip.MustParseAddr("192.0.2.1"), "eth0")
		n.start()
		test(n)
	})
}

func parsed(t testing.TB, flags []string) config.Config {
	t.Helper()
	s := config.Defaults()
	fs := pflag.NewFlagSet("kube-ipvs", pflag.ContinueOnError)
	config.Bind(fs, &s)
	if err := fs.Parse(flags); err != nil {
		t.Fatal(err)
	}
	c, err := s.Check("node-a")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (n *fakeNode) start() {
	n.Helper()
	objects, bad, err := file.Load(n.config.SourceDir)
	if err != nil || len(bad) > 0 {
		n.Fatal(err, bad)
	}
	known := catalog.New(zap.NewNop(), "node-a", model.FromFile)
	objects.Deliver(known)
	families := model.Families()
	now := wiring.Static(n.config)
	mode := serving(ipvs.New(zap.NewNop(), wiring.IPVSConfig(n.config, families[:], nil), n.deps()))
	if n.config.Mode == config.ModeIPTables {
		mode = serving(iptables.New(zap.NewNop(), wiring.IPTablesConfig(n.config, families[:], nil), iptables.Deps{Rules: n.rules, Announced: n.links}))
	}
	ready := make(chan struct{})
	n.loop = agent.New(agent.Options{
		Log: zap.NewNop(), Catalog: known, Mode: mode, NodeName: "node-a", Host: n.links,
		Compiler: wiring.CompilerFor(now, families[:]), Affects: wiring.AffectsFor(now, families[:]), NodePorts: wiring.NodePortsFor(now), LocalPod: wiring.PodMatcher(now),
		Periods: agent.Periods{AuditPeriod: -1}, Receivers: agent.Receivers{Observer: telemetry.New(), Ready: func() { close(ready) }},
	})
	ctx, cancel := context.WithCancel(n.Context())
	done := make(chan error, 1)
	go func() { done <- n.loop.Run(ctx) }()
	n.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			n.Error(err)
		}
	})
	poll.Receive(n, "the agent to be ready", ready)
}

func (n *fakeNode) explain(text, from string) explain.Report {
	n.Helper()
	q, err := agent.ParseQuery(text, from)
	if err != nil {
		n.Fatal(err)
	}
	return explained(n.Context(), n.loop, n.readers(), n.config.ExcludeCIDRs, q, nil)
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// The manifests of the situations.
func serviceText(name, spec, more string) string {
	return "apiVersion: v1\nkind: Service\nmetadata: {name: " + name + ", namespace: default" + more + "}\nspec: {" + spec + "}\n---\n"
}

func sliceText(service, port, endpoints string) string {
	return "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: " + service + "-1, namespace: default, labels: {kubernetes.io/service-name: " + service +
		"}}\naddressType: IPv4\nports: [{name: \"" + port + "\", port: 8080}]\nendpoints: [" + endpoints + "]\n---\n"
}

const (
	webSpec = "clusterIP: 10.96.0.10, ports: [{port: 80}]"
	lbSpec  = "type: LoadBalancer, clusterIP: 10.96.0.10, ports: [{port: 80}]"
	near    = "{addresses: [10.244.0.5], nodeName: node-a}"
	far     = "{addresses: [10.244.1.6], nodeName: node-b}"
	ingress = "status: {loadBalancer: {ingress: [{ip: 203.0.113.10}]}}\n---\n"
)

// ingressOf gives a Service text a load-balancer address.
func ingressOf(text string) string { return strings.TrimSuffix(text, "---\n") + ingress }

var webServer = vserver.ServerKey{Addr: netip.MustParseAddr("10.96.0.10"), Port: 80, Protocol: vserver.ProtocolTCP}

// situations are Services that do not work, each for a reason of its own, which the first three
// lines of the answer name.
var situations = []struct {
	name, manifests string
	all             bool // show what --all prints, too
	flags           []string
	breaks          func(n *fakeNode)
	ask, from       string
	want            string
}{
	{name: "all is well", all: true, manifests: serviceText("web", webSpec, "") + sliceText("web", "", near+", "+far), ask: "default/web",
		want: "all is well: default/web is served at 1 frontend, 2 of 2 endpoints take new connections"},
	{name: "no endpoints", manifests: serviceText("web", webSpec, ""), ask: "default/web", want: "no endpoints: clients are refused"},
	{name: "not ready", manifests: serviceText("web", webSpec, "") + sliceText("web", "", "{addresses: [10.244.0.5], conditions: {ready: false}}"), ask: "web",
		want: "none of its endpoints is ready (of 1): clients are refused"},
	{name: "another port name", manifests: serviceText("web", webSpec, "") + sliceText("web", "http", near), ask: "web",
		want: `no EndpointSlice has a port named "" over tcp`},
	{name: "Local without local endpoint", manifests: ingressOf(serviceText("web", lbSpec+", externalTrafficPolicy: Local", "")) + sliceText("web", "", far),
		ask: "203.0.113.10:80/tcp", from: "198.51.100.7", want: "externalTrafficPolicy is Local and no endpoint"},
	{name: "announced", all: true, manifests: ingressOf(serviceText("web", lbSpec, "")) + sliceText("web", "", near), flags: []string{"--announce-table=100"},
		ask: "203.0.113.10", want: "all is well"},
	{name: "not announced", manifests: ingressOf(serviceText("web", lbSpec+", externalTrafficPolicy: Local", "")) + sliceText("web", "", far), flags: []string{"--announce-table=100"},
		ask: "203.0.113.10", want: "clients get no answer"},
	{name: "announced by iptables mode", manifests: ingressOf(serviceText("web", lbSpec, "")) + sliceText("web", "", near), flags: []string{"--announce-table=100", "--proxy-mode=iptables"},
		ask: "203.0.113.10", want: "all is well"},
	{name: "announced route is lost", manifests: ingressOf(serviceText("web", lbSpec, "")) + sliceText("web", "", near), flags: []string{"--announce-table=100"},
		ask: "203.0.113.10", want: "ip route add blackhole 203.0.113.10/32 table 100 proto 73",
		breaks: func(n *fakeNode) {
			n.links.LoseAnnouncement(link.Announcement{Table: 100, Addr: netip.MustParseAddr("203.0.113.10")})
		}},
	{name: "refused by source range", manifests: ingressOf(serviceText("web", lbSpec+", loadBalancerSourceRanges: [198.51.100.0/24]", "")) + sliceText("web", "", near),
		ask: "203.0.113.10:80/tcp", from: "192.0.2.7", want: "192.0.2.7 is in none of loadBalancerSourceRanges (198.51.100.0/24)"},
	{name: "VIP conflict", manifests: serviceText("web", webSpec, "") + serviceText("a-web", webSpec, "") + sliceText("web", "", near), ask: "web",
		want: "10.96.0.10:80/tcp belongs to default/a-web, which comes first"},
	{name: "port collision with NodePort", manifests: serviceText("web", "type: NodePort, clusterIP: 10.96.0.10, ports: [{port: 80, nodePort: 30080}]", "") +
		serviceText("other", "type: NodePort, clusterIP: 10.96.0.11, ports: [{port: 80, nodePort: 30080}]", "") + sliceText("web", "", near),
		ask: "web", want: "node port 192.0.2.1:30080/tcp collides: default/other has it"},
	{name: "wrong scheduler", manifests: serviceText("web", webSpec, "") + sliceText("web", "", near), ask: "web", want: `instead of "-A -t 10.96.0.10:80 -s rr"`,
		breaks: func(n *fakeNode) {
			must(n.T, n.servers.WriteServers(n.Context(), []vserver.ServerChange{{Op: vserver.Update, Key: webServer, Server: vserver.Server{Scheduler: "wlc"}}})...)
		}},
	{name: "destination is gone", manifests: serviceText("web", webSpec, "") + sliceText("web", "", near), ask: "web", want: "destination is missing in the kernel: -a -t 10.96.0.10:80 -r 10.244.0.5:8080",
		breaks: func(n *fakeNode) {
			must(n.T, n.servers.WriteDestinations(n.Context(), []vserver.DestinationChange{{Op: vserver.Delete,
				Key: vserver.DestinationKey{Server: webServer, Addr: netip.MustParseAddr("10.244.0.5"), Port: 8080}}})...)
		}},
	{name: "server is gone", manifests: serviceText("web", webSpec, "") + sliceText("web", "", near), ask: "10.96.0.10", want: "virtual server -t 10.96.0.10:80 is missing in the kernel",
		breaks: func(n *fakeNode) {
			must(n.T, n.servers.WriteServers(n.Context(), []vserver.ServerChange{{Op: vserver.Delete, Key: webServer}})...)
		}},
	{name: "orphaned server on the VIP", all: true, manifests: serviceText("web", webSpec, "") + sliceText("web", "", near), ask: "web", want: "orphaned virtual server -t 10.96.0.10:443 in the kernel: no Service has it, so the agent deletes it",
		breaks: func(n *fakeNode) {
			other := webServer
			other.Port = 443
			must(n.T, n.servers.WriteServers(n.Context(), []vserver.ServerChange{{Op: vserver.Add, Key: other, Server: vserver.Server{Scheduler: "rr"}}})...)
		}},
	{name: "orphaned destination", manifests: serviceText("web", webSpec, "") + sliceText("web", "", near), ask: "web", want: "orphaned destination in the kernel: no Service has it",
		breaks: func(n *fakeNode) {
			must(n.T, n.servers.WriteDestinations(n.Context(), []vserver.DestinationChange{{Op: vserver.Add,
				Key: vserver.DestinationKey{Server: webServer, Addr: netip.MustParseAddr("192.0.2.99"), Port: 80}, Destination: vserver.Destination{Weight: 1}}})...)
		}},
	{name: "flushed chain", manifests: serviceText("web", webSpec, "") + sliceText("web", "", near), ask: "web", want: "chain ip nat KUBE-SERVICES lacks 10 of 10 rules in the kernel",
		breaks: func(n *fakeNode) {
			k := rules.ChainKey{Family: rules.IPv4, Table: "nat", Name: "KUBE-SERVICES"}
			must(n.T, n.rules.WriteChains(n.Context(), []rules.ChainChange{{Op: rules.Update, Key: k}})...)
		}},
	{name: "address is gone", manifests: serviceText("web", webSpec, "") + sliceText("web", "", near), ask: "web", want: "address is missing in the kernel (ip addr add 10.96.0.10/32 dev kube-ipvs0)",
		breaks: func(n *fakeNode) {
			must(n.T, n.links.Write(n.Context(), []link.Change{{Op: link.Delete, Addr: webServer.Addr}})...)
		}},
	{name: "entry is gone", manifests: serviceText("web", webSpec, "") + sliceText("web", "", near), ask: "web", want: "set KUBE-CLUSTER-IP lacks an entry in the kernel",
		breaks: func(n *fakeNode) {
			must(n.T, n.sets.Delete(n.Context(), "KUBE-CLUSTER-IP", ipset.IPPort(webServer.Addr, 6, 80)))
		}},
	{name: "drained backend", manifests: serviceText("web", webSpec, `, annotations: {kube-ipvs.io/weight: "0"}`) + sliceText("web", "", near), ask: "web",
		want: "all of its backends (1) have weight 0 and are drained: clients are refused (weight 0, by annotation of its Service)"},
	{name: "refused annotation", manifests: serviceText("web", webSpec, `, annotations: {kube-ipvs.io/scheduler: best}`) + sliceText("web", "", near), ask: "web",
		want: "the annotation has no effect: metadata.annotations[kube-ipvs.io/scheduler]"},
	{name: "address of a node", manifests: serviceText("web", "clusterIP: 10.96.0.10, externalIPs: [192.0.2.1], ports: [{port: 80}]", "") + sliceText("web", "", near), ask: "web",
		want: "192.0.2.1 is not bound on this node: it is an address of this node, on link eth0 (VIPConflictsWithNode)"},
	{name: "external IP not allowed", manifests: serviceText("web", "clusterIP: 10.96.0.10, externalIPs: [203.0.113.9], ports: [{port: 80}]", "") + sliceText("web", "", near),
		flags: []string{"--external-ip-allowed-cidrs=198.51.100.0/24"}, ask: "203.0.113.9", want: "external IP 203.0.113.9 is not served: not inside --external-ip-allowed-cidrs"},
	{name: "another proxy", manifests: serviceText("web", webSpec, `, labels: {service.kubernetes.io/service-proxy-name: mine}`), ask: "web",
		want: "all is well: no part of default/web is to be served\ndefault/web: no part of it is to be served: label service.kubernetes.io/service-proxy-name=mine: another proxy serves it"},
	{name: "unknown Service", manifests: serviceText("web", webSpec, ""), ask: "default/wbe", want: "no Service default/wbe is known to this node"},
	{name: "another port", manifests: serviceText("web", webSpec, "") + sliceText("web", "", near), ask: "10.96.0.10:8080", want: "default/web does not answer at 10.96.0.10:8080, but at 10.96.0.10:80/tcp"},
	{name: "address of no Service", manifests: serviceText("web", webSpec, ""), ask: "10.96.0.99:80", want: "no Service is served at 10.96.0.99:80, and none has it as an endpoint"},
	{name: "endpoint", manifests: serviceText("web", webSpec, "") + sliceText("web", "", near+", {addresses: [10.244.0.7], conditions: {ready: false}}"), ask: "10.244.0.7",
		want: "10.244.0.7:8080 is an endpoint of default/web that takes no new connections: not ready"},
	{name: "foreign server", manifests: serviceText("web", webSpec, "") + sliceText("web", "", near), ask: "172.16.0.1:80",
		want: "foreign virtual server -t 172.16.0.1:80 in the kernel: no Service has it, and kube-ipvs does not touch it",
		breaks: func(n *fakeNode) {
			stranger := vserver.ServerKey{Addr: netip.MustParseAddr("172.16.0.1"), Port: 80, Protocol: vserver.ProtocolTCP}
			must(n.T, n.servers.WriteServers(n.Context(), []vserver.ServerChange{{Op: vserver.Add, Key: stranger, Server: vserver.Server{Scheduler: "rr"}}})...)
		}},
	{name: "headless", manifests: serviceText("db", "clusterIP: None, ports: [{port: 80}]", "") + serviceText("web", webSpec, ""), ask: "db",
		want: "all is well: no part of default/db is to be served\ndefault/db: no part of it is to be served: headless"},
	{name: "ipMode Proxy", manifests: strings.ReplaceAll(ingressOf(serviceText("web", lbSpec, "")), "203.0.113.10}", "203.0.113.10, ipMode: Proxy}") + sliceText("web", "", near), ask: "web",
		want: "all is well: default/web is served at 1 frontend"},
	{name: "endpoint in use", manifests: serviceText("web", webSpec, "") + sliceText("web", "", near), ask: "10.244.0.5",
		want: "10.244.0.5 is used by default/web, behind 10.96.0.10:80/tcp\nall is well"},
	{name: "rules alone", all: true, manifests: ingressOf(serviceText("web", lbSpec+", externalTrafficPolicy: Local", "")) + sliceText("web", "", near+", "+far),
		flags: []string{"--proxy-mode=iptables"}, ask: "203.0.113.10:80", want: "all is well: default/web is served at 1 frontend"},
	{name: "rules flushed", all: true, manifests: serviceText("web", webSpec, "") + sliceText("web", "", near), flags: []string{"--proxy-mode=iptables"}, ask: "web",
		want: "chain ip nat KUBE-SERVICES lacks 1 of 1 rules in the kernel",
		breaks: func(n *fakeNode) {
			k := rules.ChainKey{Family: rules.IPv4, Table: "nat", Name: "KUBE-SERVICES"}
			must(n.T, n.rules.WriteChains(n.Context(), []rules.ChainChange{{Op: rules.Update, Key: k}})...)
		}},
}

func TestExplainNamesTheCause(t *testing.T) {
	for _, tt := range situations {
		t.Run(tt.name, func(t *testing.T) {
			onNode(t, tt.manifests, tt.flags, func(n *fakeNode) {
				if tt.breaks != nil {
					tt.breaks(n)
				}
				r := n.explain(tt.ask, tt.from)
				var b strings.Builder
				must(t, r.Write(&b, false))
				lines := strings.SplitN(b.String(), "\n", 4)
				if head := strings.Join(lines[:min(3, len(lines))], "\n"); !strings.Contains(head, tt.want) {
					t.Errorf("no %q in the first lines of\n%s", tt.want, &b)
				}
				if r.OK != strings.Contains(tt.want, "all is well") {
					t.Errorf("ok is %t", r.OK)
				}
				checkSchema(t, r)
				golden.Check(t, "explain/"+strings.ReplaceAll(tt.name, " ", "-")+".txt", b.String())
				if tt.all {
					b.Reset()
					must(t, r.Write(&b, true))
					golden.Check(t, "explain/"+strings.ReplaceAll(tt.name, " ", "-")+"-with-all.txt", b.String())
				}
			})
		})
	}
}

// However much there is to say, it fits a screen of 40 lines; --all prints the rest.
func TestExplainFitsAScreen(t *testing.T) {
	var manifests strings.Builder
	for i := range 30 {
		var ports, endpoints []string
		for p := range 6 {
			ports = append(ports, fmt.Sprintf("{name: p%d, port: %d, nodePort: %d}", p, 80+p, 30000+6*i+p))
		}
		for e := range 12 {
			endpoints = append(endpoints, fmt.Sprintf("{addresses: [10.244.0.%d], nodeName: node-a, conditions: {ready: %t}}", 5+e, e < 8))
		}
		name := fmt.Sprintf("web%d", i)
		manifests.WriteString(serviceText(name, fmt.Sprintf("type: LoadBalancer, externalTrafficPolicy: Local, clusterIP: 10.96.1.%d, clusterIPs: [10.96.1.%d, 'fd00:96::1:%d'], loadBalancerSourceRanges: [198.51.100.0/24], ports: [%s]",
			i, i, i, strings.Join(ports, ", ")), ""))
		slice := sliceText(name, "", strings.Join(endpoints, ", "))
		var targets []string
		for p := range 6 {
			targets = append(targets, fmt.Sprintf("{name: p%d, port: %d}", p, 8080+p))
		}
		manifests.WriteString(strings.Replace(slice, `{name: "", port: 8080}`, strings.Join(targets, ", "), 1))
	}
	onNode(t, manifests.String(), nil, func(n *fakeNode) {
		for _, ask := range []string{"web7", "10.244.0.5", "10.96.1.7", "10.244.0.5:8080"} {
			r := n.explain(ask, "")
			var short, long strings.Builder
			must(t, r.Write(&short, false), r.Write(&long, true))
			if lines := strings.Count(short.String(), "\n"); lines > 40 || strings.Count(long.String(), "\n") <= lines {
				t.Errorf("%s: %d lines, %d with --all\n%s", ask, lines, strings.Count(long.String(), "\n"), &short)
			}
		}
		if r := n.explain("10.244.0.5", ""); len(r.UsedBy) != 30 || !strings.Contains(r.UsedBy[0], "10.244.0.5 is used by default/web0, behind ") {
			t.Errorf("used by %q", r.UsedBy)
		}
	})
}

// README and the page of troubleshooting show an answer as it is.
func TestPagesExplain(t *testing.T) {
	answer, err := os.ReadFile("testdata/explain/orphaned-server-on-the-VIP.txt")
	must(t, err)
	for _, page := range []string{"../../README.md", "../../manifests/docs/troubleshooting.md"} {
		if len(answer) == 0 || !strings.Contains(readPage(t, page), string(answer)) {
			t.Errorf("%s does not have:\n%s", page, answer)
		}
	}
}

// A kernel that cannot be read is said, and never taken for one without rows.
func TestExplainWithoutTheModule(t *testing.T) {
	onNode(t, serviceText("web", webSpec, "")+sliceText("web", "", near), nil, func(n *fakeNode) {
		k := n.readers()
		k.deps.Servers = unreadServers{err: errors.New("family IPVS: not supported")}
		q, err := agent.ParseQuery("web", "")
		must(t, err)
		r := explained(n.Context(), n.loop, k, nil, q, nil)
		if want := "virtual servers cannot be read of the kernel: family IPVS: not supported"; r.OK || r.Verdict[0] != want || len(r.Kernel.Missing) > 0 {
			t.Errorf("verdict %q, missing %v, want %q", r.Verdict, r.Kernel.Missing, want)
		}
		checkSchema(t, r)
	})
}

// noAgent is an agent that does not answer.
type noAgent struct{}

func (noAgent) Explain(context.Context, agent.Query) (agent.Report, error) {
	return agent.Report{}, errors.New("no agent is running at /run/x")
}

func TestExplainWithoutAnAgent(t *testing.T) {
	onNode(t, serviceText("web", webSpec, "")+sliceText("web", "", near), nil, func(n *fakeNode) {
		for ask, want := range map[string][]string{
			"10.96.0.10": {"no agent reports what is desired: no agent is running at /run/x", "the kernel has 1 virtual server for 10.96.0.10, with 1 destination"},
			"web":        {"no agent reports what is desired: no agent is running at /run/x", "only a running agent knows the virtual servers of default/web; ask for one of its addresses"},
		} {
			q, err := agent.ParseQuery(ask, "")
			must(t, err)
			r := explained(n.Context(), noAgent{}, n.readers(), nil, q, nil)
			if !slices.Equal(r.Verdict, want) || r.OK {
				t.Errorf("%s: verdict %q, want %q", ask, r.Verdict, want)
			}
			checkSchema(t, r)
		}
	})
}

// agentOf answers diff by the loop itself.
type agentOf struct{ n *fakeNode }

func (a agentOf) wanted(context.Context) (config.Mode, func(context.Context, string) (string, error), error) {
	return a.n.config.Mode, func(ctx context.Context, kind string) (string, error) {
		write, err := a.n.loop.Rows(ctx, kind)
		if err != nil {
			return "", err
		}
		var b strings.Builder
		err = write(&b)
		return b.String(), err
	}, nil
}

func TestDiff(t *testing.T) {
	manifests := serviceText("web", "type: NodePort, clusterIP: 10.96.0.10, externalIPs: [203.0.113.10], ports: [{port: 80, nodePort: 30080}]", "") + sliceText("web", "", near)
	for name, tt := range map[string]struct {
		flags  []string
		breaks func(n *fakeNode, k *readOnlyKernel)
		want   string
		code   int
	}{
		"equal":              {want: "equal: the kernel has all desired rows\n"},
		"equal, rules alone": {flags: []string{"--proxy-mode=iptables"}, want: "equal: the kernel has all desired rows\n"},
		"equal, announced":   {flags: []string{"--announce-table=100"}, want: "equal: the kernel has all desired rows\n"},
		"route lost": {flags: []string{"--announce-table=100"}, code: exitFound, want: "@@ addresses @@\n+ip route add blackhole 203.0.113.10/32 table 100 proto 73\n",
			breaks: func(n *fakeNode, _ *readOnlyKernel) {
				n.links.LoseAnnouncement(link.Announcement{Table: 100, Addr: netip.MustParseAddr("203.0.113.10")})
			}},
		"equal, announced, rules alone": {flags: []string{"--announce-table=100", "--proxy-mode=iptables"}, want: "equal: the kernel has all desired rows\n"},
		"another route, rules alone": {flags: []string{"--announce-table=100", "--proxy-mode=iptables"}, code: exitFound,
			want: "@@ addresses @@\n-ip route add blackhole 203.0.113.11/32 table 200 proto 73\n+ip route add blackhole 203.0.113.10/32 table 100 proto 73\n",
			breaks: func(n *fakeNode, _ *readOnlyKernel) {
				n.links.LoseAnnouncement(link.Announcement{Table: 100, Addr: netip.MustParseAddr("203.0.113.10")})
				must(n.T, n.links.WriteAnnounced(n.Context(), []link.AnnounceChange{{Op: link.Add, Announcement: link.Announcement{Table: 200, Addr: netip.MustParseAddr("203.0.113.11")}}})...)
			}},
		"different": {code: exitFound, want: "@@ servers @@\n--A -t 10.96.0.10:80 -s wlc\n+-A -t 10.96.0.10:80 -s rr\n@@ sets @@\n+add KUBE-CLUSTER-IP 10.96.0.10,tcp:80\n",
			breaks: func(n *fakeNode, _ *readOnlyKernel) {
				must(n.T, n.servers.WriteServers(n.Context(), []vserver.ServerChange{{Op: vserver.Update, Key: webServer, Server: vserver.Server{Scheduler: "wlc"}}})...)
				must(n.T, n.sets.Delete(n.Context(), "KUBE-CLUSTER-IP", ipset.IPPort(webServer.Addr, 6, 80)))
			}},
		"servers of others": {want: "equal: the kernel has all desired rows\n", breaks: func(n *fakeNode, _ *readOnlyKernel) {
			other := vserver.ServerKey{Addr: netip.MustParseAddr("198.51.100.1"), Port: 1, Protocol: vserver.ProtocolTCP}
			must(n.T, n.servers.WriteServers(n.Context(), []vserver.ServerChange{{Op: vserver.Add, Key: other, Server: vserver.Server{Scheduler: "rr"}}})...)
		}},
		"unreadable": {code: exitFailed, breaks: func(_ *fakeNode, k *readOnlyKernel) {
			k.deps.Servers = unreadServers{err: errors.New("not supported")}
		}},
		"unreadable, rules alone": {flags: []string{"--proxy-mode=iptables"}, code: exitFailed, breaks: func(_ *fakeNode, k *readOnlyKernel) {
			k.deps.Rules = unreadRules{err: errors.New("not supported")}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			onNode(t, manifests, tt.flags, func(n *fakeNode) {
				k := n.readers()
				if tt.breaks != nil {
					tt.breaks(n, &k)
				}
				var notes strings.Builder
				for _, asked := range []desiredSource{agentOf{n}, desiredFromManifests{c: n.config, k: k, notes: &notes}} {
					var out, said strings.Builder
					if code := report(NewRoot(), diff(n.Context(), n.config, asked, k, &out, "text"), &said); code != tt.code || out.String() != tt.want {
						t.Errorf("%T: status %d and\n%swant %d and\n%s%s", asked, code, &out, tt.code, tt.want, &said)
					}
					if tt.code == exitFailed {
						continue
					}
					out.Reset()
					if code := report(NewRoot(), diff(n.Context(), n.config, asked, k, &out, "json"), &said); code != tt.code {
						t.Errorf("%T: status %d of JSON, want %d", asked, code, tt.code)
					}
					fits(t, "diff", out.String())
				}
			})
		})
	}
}

func TestPlanDiffAgainst(t *testing.T) {
	now := directory(t, map[string]string{"web.yaml": manifest})
	next := directory(t, map[string]string{"web.yaml": strings.ReplaceAll(manifest, "10.244.0.5", "10.244.0.6"), "lost.yaml": dryRun})
	out, notes, err := talk("plan", "--source-dir", now, "--diff-against", next, "--hostname-override", "node-a", "--show", "servers,addresses")
	if report(newPlan(), err, io.Discard) != exitFound {
		t.Errorf("a difference ends with %v", err)
	}
	if !strings.HasPrefix(notes, next+": default/new: skipped: no cluster IP") || strings.Count(notes, "skipped") != 1 {
		t.Errorf("notes\n%s", notes)
	}
	want := "--- " + now + "\n+++ " + next + "\n@@ servers @@\n--a -t 10.96.0.10:80 -r 10.244.0.5:8080 -m -w 1\n+-a -t 10.96.0.10:80 -r 10.244.0.6:8080 -m -w 1\n"
	if out != want {
		t.Errorf("got\n%swant\n%s", out, want)
	}
	if out := execute(t, "plan", "--source-dir", now, "--diff-against", now, "--hostname-override", "node-a"); out != "" {
		t.Errorf("the same manifests differ:\n%s", out)
	}
	if _, err := try("plan", "--source-dir", now, "--diff-against", now+"/none"); err == nil || !strings.Contains(err.Error(), "--diff-against") {
		t.Errorf("error %v", err)
	}
}
