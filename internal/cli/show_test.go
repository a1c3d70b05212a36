package cli

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/agent"
	"github.com/kube-ipvs/kube-ipvs/internal/catalog"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/netfilter"
	"github.com/kube-ipvs/kube-ipvs/internal/inspect"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/link"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/source/file"
	"github.com/kube-ipvs/kube-ipvs/internal/telemetry"
	"github.com/kube-ipvs/kube-ipvs/internal/testkit/poll"
	"github.com/kube-ipvs/kube-ipvs/internal/wiring"
)

// shopManifests are Services of each state; the address of shop/stuck is refused by the kernel.
const shopManifests = `
apiVersion: v1
kind: Service
metadata: {name: cart, namespace: shop}
spec:
  type: NodePort
  clusterIP: 10.96.0.10
  externalIPs: [203.0.113.5]
  ports: [{name: http, port: 80, nodePort: 30080}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: cart-1, namespace: shop, labels: {kubernetes.io/service-name: cart}}
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints: [{addresses: [10.244.0.5], nodeName: node-a}, {addresses: [10.244.0.6], nodeName: node-b}]
---
apiVersion: v1
kind: Service
metadata: {name: copy, namespace: shop}
spec:
  clusterIP: 10.96.0.12
  externalIPs: [203.0.113.5]
  ports: [{port: 80}]
---
apiVersion: v1
kind: Service
metadata: {name: stuck, namespace: shop}
spec: {clusterIP: 10.96.0.13, ports: [{port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: headless, namespace: other}
spec: {clusterIP: None, ports: [{port: 80}]}
`

// shop is a running agent over a kernel made of fakes, with its socket.
type shop struct {
	fakeKernel
	known *catalog.Catalog
	loop  *agent.Agent
	dir   string
}

func openShop(t *testing.T) shop {
	t.Helper()
	objects, _, err := file.Load(directory(t, map[string]string{"shop.yaml": shopManifests}))
	if err != nil {
		t.Fatal(err)
	}
	s := shop{fakeKernel: emptyKernel(t), known: catalog.New(zap.NewNop(), "node-a", model.FromFile)}
	s.dir = t.TempDir()
	s.config.RunDir = s.dir
	s.links.AddElsewhere(netip.MustParseAddr("192.168.0.1"), "eth0")
	s.links.FailAddr(netip.MustParseAddr("10.96.0.13"), errors.New("no memory"))
	both, now := model.Families(), wiring.Static(s.config)
	s.loop = agent.New(agent.Options{
		Log: zap.NewNop(), Catalog: s.known, Mode: s.mode(s.deps()), NodeName: "node-a", Receivers: agent.Receivers{Observer: telemetry.New()},
		Compiler: wiring.CompilerFor(now, both[:]), Affects: wiring.AffectsFor(now, both[:]), Host: s.links, NodePorts: wiring.NodePortsFor(now),
		About:   func() agent.About { return agent.About{Version: "v0.1.0", Kernel: "6.12.0", Scheduler: "rr"} },
		Periods: agent.Periods{AuditPeriod: -1},
	})
	socket, err := inspect.Listen(s.config.Socket())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	go func() { ended <- s.loop.Run(ctx) }()
	go func() {
		ended <- inspect.Serve(ctx, socket, inspect.Handler(s.loop, http.NotFoundHandler(), healthRows))
	}()
	t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-ended, <-ended); err != nil {
			t.Errorf("the agent ended with %v", err)
		}
	})
	objects.Deliver(s.known)
	s.await(t, func() bool { return strings.Contains(s.servers.String(), "203.0.113.5:80") })
	s.drain(t, objects)
	return s
}

// drain takes away an endpoint that has a connection.
func (s shop) drain(t *testing.T, objects file.Objects) {
	t.Helper()
	server := vserver.ServerKey{Addr: netip.MustParseAddr("10.96.0.10"), Port: 80, Protocol: vserver.ProtocolTCP}
	s.servers.SetConnections(vserver.DestinationKey{Server: server, Addr: netip.MustParseAddr("10.244.0.6"), Port: 8080}, vserver.Connections{Active: 2, Inactive: 1})
	slice := objects.Slices[0]
	slice.Endpoints = slice.Endpoints[:1]
	s.known.SetSlice(slice)
	s.await(t, func() bool {
		moving, err := s.loop.Moving(t.Context(), dataplane.MovingList{Most: 10})
		return err == nil && len(moving.Rows) == 3
	})
}

// await polls until something holds.
func (s shop) await(t *testing.T, holds func() bool) {
	t.Helper()
	poll.Until(t, "a state of the agent", holds, s.servers.String, s.links.String)
}

// show runs a verb of show against the agent.
func (s shop) show(t *testing.T, args ...string) string {
	t.Helper()
	return execute(t, append([]string{"show", "--run-dir", s.dir}, args...)...)
}

func TestShowWhatTheAgentKnows(t *testing.T) {
	s := openShop(t)
	for command, want := range map[string]string{
		"services": `NAMESPACE  NAME   KINDS                          VIPS                    PORTS             BACKENDS  SCHEDULER  STATE
shop       cart   ClusterIP,ExternalIP,NodePort  10.96.0.10,203.0.113.5  80/tcp,30080/tcp  1         rr         serving
shop       copy   ClusterIP,ExternalIP           10.96.0.12,203.0.113.5  80/tcp            0         rr         conflict
shop       stuck  ClusterIP                      10.96.0.13              80/tcp            0         rr         no backends
`,
		"services -n shop --sort-by -name --no-headers --vip 10.96.0.12/31": `shop  stuck  ClusterIP             10.96.0.13              80/tcp  0  rr  no backends
shop  copy   ClusterIP,ExternalIP  10.96.0.12,203.0.113.5  80/tcp  0  rr  conflict
`,
		"services headless --no-headers -n other": "other  headless  -  -  -  0  -  skipped\n",
		"services cart --no-headers -n shop":      "shop  cart  ClusterIP,ExternalIP,NodePort  10.96.0.10,203.0.113.5  80/tcp,30080/tcp  1  rr  serving\n",
		"frontends --vip 203.0.113.5": `FRONTEND            KIND        SERVICE         SCHEDULER  BACKENDS  FLAGS  WINNER
203.0.113.5:80/tcp  ExternalIP  shop/cart:http  rr         1         bound  -
203.0.113.5:80/tcp  ExternalIP  shop/copy       rr         0         bound  shop/cart
`,
		"backends shop/cart": `BACKEND              SERVICE         FRONTENDS  WEIGHT  STATE
10.244.0.5:8080/tcp  shop/cart:http  3          1       serving
`,
		"pending": `TABLE      OP   STATE   ROW
addresses  add  failed  ip addr add 10.96.0.13/32 dev kube-ipvs0
`,
		"conflicts": `FRONTEND            HOLDER     LOSER      WHY
203.0.113.5:80/tcp  shop/cart  shop/copy  the holder is older, or as old and first by name
`,
	} {
		if diff := cmp.Diff(want, s.show(t, strings.Fields(command)...)); diff != "" {
			t.Errorf("show %s (-want +got):\n%s", command, diff)
		}
	}
	if got := s.show(t, "draining", "--no-headers", "--vip", "10.96.0.10"); !strings.HasPrefix(got, "10.96.0.10:80/tcp  10.244.0.6:8080  shop/cart:http  draining  ") {
		t.Errorf("draining:\n%s", got)
	}
	if got := s.show(t, "services", "cart", "-o", "yaml"); !strings.Contains(got, "items:\n- backends: 1\n") {
		t.Errorf("services as YAML:\n%s", got)
	}
	if got := s.show(t, "status", "-o", "yaml"); !strings.Contains(got, "\nnode: node-a\n") {
		t.Errorf("status as YAML:\n%s", got)
	}
}

func TestShowRefusesWhatItDoesNotKnow(t *testing.T) {
	for command, want := range map[string]string{
		"services -o xml":                   `--output: "xml" is not one of table, wide, json, yaml`,
		"services --sort-by colour":         "--sort-by: there is no column",
		"services --vip web":                "--vip: ",
		"services --interval 1ms":           "--interval: ",
		"services shop/cart -n other":       "shop/cart is not in namespace other",
		"services a b":                      "accepts at most 1 arg",
		"pending cart":                      "neither a verb nor a flag",
		"servces":                           "did you mean services?",
		"services --nmaespace x":            "did you mean --namespace?",
		"services a b c":                    "usage: kube-ipvs show services",
		"pending -n shop":                   "unknown shorthand flag",
		"kernel cart":                       "neither a verb nor a flag",
		"services --run-dir /nonexistent":   "no agent is running",
		"status --watch --run-dir /nowhere": "no agent is running",
	} {
		if out, err := try(append([]string{"show"}, strings.Fields(command)...)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("show %s: error %v, want %q; printed\n%s", command, err, want, out)
		}
	}
}

// kernel is a reader of the fakes that an agent writes, with or without that agent.
func (s shop) kernel(notes io.Writer, agentAt string) *kernelReader {
	return &kernelReader{vserver: s.servers, ipset: s.sets, iptables: s.rules, link: s.links, agent: inspect.NewClient(agentAt), notes: notes}
}

// lines prints the rows of a list.
func lines[R any](t *testing.T, table inspect.Table[R], q query, read func(context.Context, query) (inspect.List[R], error)) string {
	t.Helper()
	list, err := read(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := table.Write(&b, list.Items, inspect.TableOptions{NoHeaders: true}); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func place(t *testing.T, text string) inspect.Place {
	t.Helper()
	p, err := inspect.ParsePlace(text)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestShowWhatTheKernelHolds(t *testing.T) {
	s := openShop(t)
	stranger := vserver.ServerKey{Addr: netip.MustParseAddr("172.16.0.1"), Port: 80, Protocol: vserver.ProtocolTCP}
	if err := s.servers.WriteServers(t.Context(), []vserver.ServerChange{{Op: vserver.Add, Key: stranger, Server: vserver.Server{Scheduler: "wlc"}}}); err != nil {
		t.Fatal(err)
	}
	var notes strings.Builder
	k := s.kernel(&notes, s.config.Socket())
	want := `10.96.0.10:80/tcp      rr   10.244.0.5:8080  1  0  0  shop/cart
10.96.0.10:80/tcp      rr   10.244.0.6:8080  0  2  1  shop/cart
10.96.0.12:80/tcp      rr   -                0  0  0  shop/copy
10.96.0.13:80/tcp      rr   -                0  0  0  shop/stuck
172.16.0.1:80/tcp      wlc  -                0  0  0  foreign
192.168.0.1:30080/tcp  rr   10.244.0.5:8080  1  0  0  shop/cart
192.168.0.1:30080/tcp  rr   10.244.0.6:8080  0  0  0  shop/cart
203.0.113.5:80/tcp     rr   10.244.0.5:8080  1  0  0  shop/cart
203.0.113.5:80/tcp     rr   10.244.0.6:8080  0  0  0  shop/cart
`
	if diff := cmp.Diff(want, lines(t, inspect.KernelServerTable(), query{}, k.servers)); diff != "" {
		t.Errorf("servers (-want +got):\n%s", diff)
	}
	filter := inspect.Filter{Namespace: "shop", VIP: place(t, "10.96.0.0/16"), Backend: place(t, "10.244.0.6")}
	if diff := cmp.Diff("10.96.0.10:80/tcp  rr  10.244.0.6:8080  0  2  1  shop/cart\n", lines(t, inspect.KernelServerTable(), query{Filter: filter}, k.servers)); diff != "" {
		t.Errorf("servers of a filter (-want +got):\n%s", diff)
	}
	for set, want := range map[string]string{
		"KUBE-CLUSTER-IP":    "KUBE-CLUSTER-IP  10.96.0.10,tcp:80  shop/cart\nKUBE-CLUSTER-IP  10.96.0.12,tcp:80  shop/copy\nKUBE-CLUSTER-IP  10.96.0.13,tcp:80  shop/stuck\n",
		"KUBE-NODE-PORT-TCP": "KUBE-NODE-PORT-TCP  30080  shop/cart\n",
		"KUBE-LOOP-BACK":     "KUBE-LOOP-BACK  10.244.0.5,tcp:8080,10.244.0.5  shop/cart\n",
		"KUBE-NODE-PORT-IPS": "KUBE-NODE-PORT-IPS  192.168.0.1  kube-ipvs\n",
		"KUBE-IPVS-IPS":      "KUBE-IPVS-IPS  10.96.0.10   shop/cart\nKUBE-IPVS-IPS  10.96.0.12   shop/copy\nKUBE-IPVS-IPS  10.96.0.13   shop/stuck\nKUBE-IPVS-IPS  203.0.113.5  shop/cart\n",
	} {
		if diff := cmp.Diff(want, lines(t, inspect.KernelEntryTable(), query{named: set}, k.entries)); diff != "" {
			t.Errorf("entries of %s (-want +got):\n%s", set, diff)
		}
	}
	if got := lines(t, inspect.KernelSetTable(), query{}, k.sets); !strings.Contains(got, "KUBE-CLUSTER-IP                  hash:ip,port      3  kube-ipvs\n") {
		t.Errorf("sets:\n%s", got)
	}
	route := link.AnnounceChange{Op: link.Add, Announcement: link.Announcement{Table: 100, Addr: netip.MustParseAddr("203.0.113.5")}}
	if errs := s.links.WriteAnnounced(t.Context(), []link.AnnounceChange{route}); errs != nil {
		t.Fatal(errs)
	}
	want = "10.96.0.10   address    kube-ipvs0  shop/cart\n10.96.0.12   address    kube-ipvs0  shop/copy\n203.0.113.5  address    kube-ipvs0  shop/cart\n203.0.113.5  announced  table 100   shop/cart\n192.168.0.1  address    eth0        foreign\n"
	if diff := cmp.Diff(want, lines(t, inspect.KernelAddressTable(), query{}, k.addresses)); diff != "" {
		t.Errorf("addresses (-want +got):\n%s", diff)
	}
	if got := lines(t, inspect.KernelRuleTable(), query{named: "KUBE-SERVICES"}, k.rules); !strings.Contains(got, "ip   nat  KUBE-SERVICES  1") || strings.Contains(got, "KUBE-POSTROUTING  1") {
		t.Errorf("rules:\n%s", got)
	}
	if notes.Len() > 0 {
		t.Errorf("an agent runs, and it is noted: %s", &notes)
	}
}

// Without an agent no Service is named, which is reported once, and our rows are still shown.
func TestShowWhatTheKernelHoldsWithoutAnAgent(t *testing.T) {
	s := openShop(t)
	var notes strings.Builder
	k := s.kernel(&notes, t.TempDir()+"/agent.sock")
	for range 2 {
		if got := lines(t, inspect.KernelServerTable(), query{Filter: inspect.Filter{VIP: place(t, "192.168.0.1")}}, k.servers); !strings.HasSuffix(got, "  kube-ipvs\n") {
			t.Errorf("servers:\n%s", got)
		}
	}
	if got := notes.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "the column of Services is empty: no agent is running") {
		t.Errorf("notes:\n%s", got)
	}
	if _, err := k.servers(t.Context(), query{Filter: inspect.Filter{Namespace: "shop"}}); err == nil || !strings.Contains(err.Error(), "only a running agent knows") {
		t.Errorf("error %v", err)
	}
	if _, err := k.sets(t.Context(), query{Filter: inspect.Filter{Namespace: "shop"}}); err == nil || !strings.Contains(err.Error(), "need the name of a set") {
		t.Errorf("error %v", err)
	}
	if _, err := k.entries(t.Context(), query{named: "UNKNOWN"}); err == nil {
		t.Error("a set that does not exist has entries")
	}
	nothing := &kernelReader{agent: k.agent, notes: io.Discard, link: s.links}
	if got := lines(t, inspect.KernelServerTable(), query{}, nothing.servers) + lines(t, inspect.KernelSetTable(), query{}, nothing.sets) + lines(t, inspect.KernelRuleTable(), query{}, nothing.rules); got != "" {
		t.Errorf("a kernel without anything holds\n%s", got)
	}
}

// A rule belongs to the Service that its comment names, or whose address it matches, and a chain to those of the rules
// that lead there.
func TestRulesBelongToServices(t *testing.T) {
	s := openShop(t)
	frontends, err := inspect.NewClient(s.config.Socket()).Frontends(t.Context(), inspect.Filter{})
	if err != nil {
		t.Fatal(err)
	}
	o := inspect.NewOwners(frontends.Items, nil)
	for rule, want := range map[string]string{
		`-m comment --comment "shop/cart:http" -j KUBE-SEP-X`:                  "shop/cart",
		`-d 10.96.0.12/32 -p tcp -m tcp --dport 80 -j DNAT --to-destination x`: "shop/copy",
		`-d 10.96.0.12/32 -p udp -m udp --dport 80 -j RETURN`:                  "",
		`-m comment --comment "shop/other cluster IP" -j KUBE-SVC-X`:           "",
		`-j RETURN`: "",
		``:          "",
	} {
		if got := strings.Join(ruleOwners(o, netfilter.ReadLine(rule).Rule(rules.IPv4)), ","); got != want {
			t.Errorf("%s belongs to %q, want %q", rule, got, want)
		}
	}
	chain := func(name string) rules.ChainKey { return rules.ChainKey{Family: rules.IPv4, Table: "nat", Name: name} }
	got := chainOwners(o, map[netfilter.ChainKey]netfilter.Chain{
		chain("KUBE-SERVICES"): netfilter.ReadChain(rules.Chain{Rules: "-d 10.96.0.10/32 -p tcp -m tcp --dport 80 -j KUBE-SVC-A\n-d 10.96.0.12/32 -p tcp -m tcp --dport 80 -j KUBE-FW-B\n-j KUBE-SVC-C"}),
		chain("KUBE-SVC-A"):    netfilter.ReadChain(rules.Chain{Rules: "-j KUBE-MARK-MASQ\n-j KUBE-SEP-A"}),
		chain("KUBE-FW-B"):     netfilter.ReadChain(rules.Chain{Rules: "-j KUBE-EXT-B"}),
		chain("KUBE-EXT-B"):    netfilter.ReadChain(rules.Chain{Rules: "-j KUBE-SVC-B"}),
		chain("KUBE-SVC-B"):    netfilter.ReadChain(rules.Chain{Rules: "-j KUBE-SEP-B"}),
	})
	want := map[rules.ChainKey][]string{
		chain("KUBE-SVC-A"): {"shop/cart"}, chain("KUBE-SEP-A"): {"shop/cart"}, chain("KUBE-FW-B"): {"shop/copy"},
		chain("KUBE-EXT-B"): {"shop/copy"}, chain("KUBE-SVC-B"): {"shop/copy"}, chain("KUBE-SEP-B"): {"shop/copy"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("chains (-want +got):\n%s", diff)
	}
}

// A watcher gets page after page, goes on while the agent is away, and ends when it is told to.
func TestWatch(t *testing.T) {
	s := openShop(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out := &pages{after: 3, enough: cancel}
	root := NewRoot()
	root.SetArgs([]string{"show", "services", "--run-dir", s.dir, "--watch", "--interval", "100ms", "-o", "json"})
	root.SetOut(out)
	root.SetErr(io.Discard)
	if err := root.ExecuteContext(ctx); err != nil {
		t.Fatal(err)
	}
	for i, page := range out.list {
		var list inspect.List[inspect.ServiceRow]
		if err := json.Unmarshal([]byte(page), &list); err != nil || len(list.Items) != 3 {
			t.Errorf("page %d: error %v\n%s", i, err, page)
		}
	}
	if len(out.list) < 3 {
		t.Errorf("%d pages, want 3", len(out.list))
	}
}

// pages keeps what is written, and reports when it is enough.
type pages struct {
	list   []string
	after  int
	enough func()
}

func (p *pages) Write(b []byte) (int, error) {
	p.list = append(p.list, string(b))
	if len(p.list) >= p.after {
		p.enough()
	}
	return len(b), nil
}

// If a later refresh fails, the error replaces the page, and the refreshes continue.
func TestWatchGoesOn(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var notes strings.Builder
	out := &pages{after: 4, enough: cancel}
	cmd := NewRoot()
	cmd.SetContext(ctx)
	cmd.SetOut(out)
	cmd.SetErr(&notes)
	o := viewOptions{output: "table", watch: true, interval: shortestInterval}
	turn := 0
	err := o.show(cmd, func(_ context.Context, p page) error {
		if turn++; turn == 2 {
			return errors.New("away")
		}
		_, err := io.WriteString(p.out, "row\n")
		return err
	})
	if diff := cmp.Diff([]string{"row\n", "\n", "\nrow\n", "\nrow\n"}, out.list); err != nil || diff != "" || notes.String() != "kube-ipvs: away\n" {
		t.Errorf("error %v, notes %q, pages (-want +got):\n%s", err, &notes, diff)
	}
}
