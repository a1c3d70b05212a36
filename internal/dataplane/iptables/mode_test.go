package iptables_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/iptables"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/netfilter"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nftables"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/testkit/build"
)

var (
	web  = service("web", "10.96.0.10", "10.244.0.1", "10.244.1.1")
	twin = service("twin", "fd00:96::10", "fd00:244::1")
)

func TestRestartWritesNothing(t *testing.T) {
	k := newKernel()
	apply(t, begin(t, k, everyKind()...))
	text := k.String()
	k.forget()
	if r := apply(t, begin(t, k, everyKind()...)); len(r.Stages) != 0 {
		t.Errorf("wrote %+v", r.Stages)
	}
	if slices.Contains(k.calls, "write") || slices.Contains(k.calls, "write jumps") {
		t.Errorf("calls %v", k.calls)
	}
	if diff := cmp.Diff(text, k.String()); diff != "" {
		t.Errorf("kernel (-before +after):\n%s", diff)
	}
}

// many are Services with ten endpoints each.
func many(n int) []model.ServicePlan {
	out := make([]model.ServicePlan, n)
	for i := range out {
		out[i] = tenEndpoints(i, 0)
	}
	return out
}

// twoEndpoints is Service i with two endpoints, the last of which varies.
func twoEndpoints(i, variant int) model.ServicePlan {
	return service(fmt.Sprint("svc", i), fmt.Sprintf("10.96.%d.%d", i>>8, i&255), "10.244.0.1", fmt.Sprintf("10.244.1.%d", variant))
}

// tenEndpoints is Service i with ten endpoints, the last of which varies.
func tenEndpoints(i, variant int) model.ServicePlan {
	name := fmt.Sprint("svc", i)
	var addrs []string
	for e := range 10 {
		last := e
		if e == 9 {
			last += variant
		}
		addrs = append(addrs, fmt.Sprintf("10.%d.%d.%d", 128+i>>8, i&255, last))
	}
	return service(name, fmt.Sprintf("10.96.%d.%d", i>>8, i&255), addrs...)
}

// chainsOf names the chains of one Service: its pool and its endpoints.
func chainsOf(t *testing.T, p model.ServicePlan) (pool string, endpoints []string) {
	t.Helper()
	for _, name := range serviceChains(t, clean(t, config(), p)) {
		if strings.Contains(name, "KUBE-SVC-") {
			pool = name
		} else {
			endpoints = append(endpoints, name)
		}
	}
	return pool, endpoints
}

func TestOneChangeIsOneWriteOfItsRows(t *testing.T) {
	k := newKernel()
	m := iptables.New(zap.NewNop(), config(), k.deps())
	m.SetHost(host())
	for i := range 2000 {
		m.Set(twoEndpoints(i, 0))
	}
	if err := m.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	apply(t, m)

	pool, before := chainsOf(t, twoEndpoints(7, 0))
	_, after := chainsOf(t, twoEndpoints(7, 1))
	left := slices.DeleteFunc(slices.Clone(before), func(c string) bool { return slices.Contains(after, c) })
	came := slices.DeleteFunc(slices.Clone(after), func(c string) bool { return slices.Contains(before, c) })
	newPool, newEndpoints := chainsOf(t, twoEndpoints(2000, 0))
	var added, removed []string
	for _, c := range append(newEndpoints, newPool) {
		added, removed = append(added, "add "+c), append(removed, "delete "+c)
	}
	to := "rule ip nat KUBE-SERVICES -j " + strings.Fields(newPool)[2]
	for _, step := range []struct {
		name string
		plan model.ServicePlan
		want []string
	}{
		{"one endpoint for another", twoEndpoints(7, 1), []string{"add " + came[0], "delete " + left[0], "update " + pool}},
		{"a new Service", twoEndpoints(2000, 0), append(added, "add "+to)},
		{"a deleted Service", gone("svc2000"), append(removed, "delete "+to)},
		{"nothing", twoEndpoints(7, 1), nil},
	} {
		k.forget()
		processes := k.Counters().Restore
		m.Set(step.plan)
		apply(t, m)
		slices.Sort(step.want)
		want := [][]string{step.want}
		if step.want == nil {
			want = nil
		}
		if diff := cmp.Diff(want, k.batches); diff != "" {
			t.Errorf("%s: writes (-want +got):\n%s", step.name, diff)
		}
		if got := k.Counters().Restore - processes; int(got) != len(want) {
			t.Errorf("%s: %d processes", step.name, got)
		}
	}
}

func BenchmarkOneEndpointOf(b *testing.B) {
	for _, n := range []int{100, 1_000, 10_000} {
		b.Run(fmt.Sprintf("services=%d", n), func(b *testing.B) {
			s := &silentRules{}
			m := filled(b, s, many(n))
			variants := []model.ServicePlan{tenEndpoints(7, 0), tenEndpoints(7, 1)}
			b.ReportAllocs()
			for i := 1; b.Loop(); i++ {
				m.Set(variants[i%2])
				if r := m.Apply(b.Context(), dataplane.ApplyOptions{Retry: true}); r.Total().Written() != 3 {
					b.Fatalf("wrote %+v", r)
				}
			}
		})
	}
}

func BenchmarkFirstLoadOf(b *testing.B) {
	for _, n := range []int{100, 1_000, 10_000} {
		b.Run(fmt.Sprintf("services=%d", n), func(b *testing.B) {
			plans := many(n)
			b.ReportAllocs()
			for b.Loop() {
				filled(b, &silentRules{}, plans)
			}
		})
	}
}

// filled is a mode that has written its plans.
func filled(b *testing.B, s *silentRules, plans []model.ServicePlan) *iptables.Mode {
	b.Helper()
	m := iptables.New(zap.NewNop(), config(), iptables.Deps{Rules: s})
	m.SetHost(host())
	for _, p := range plans {
		m.Set(p)
	}
	if err := m.Load(b.Context()); err != nil {
		b.Fatal(err)
	}
	apply(b, m)
	return m
}

func TestOrphansGoOnlyWhenAllInputIsKnown(t *testing.T) {
	k := newKernel()
	apply(t, begin(t, k, web, twin))
	text := k.Save(rules.IPv4)
	m := begin(t, k, twin) // web is not told of
	m.Apply(t.Context(), dataplane.ApplyOptions{KeepOrphans: true, Retry: true})
	if diff := cmp.Diff(text, k.Save(rules.IPv4)); diff != "" {
		t.Fatalf("an orphan was touched although some input is missing (-before +after):\n%s", diff)
	}
	m.Set(gone("twin"))
	m.Apply(t.Context(), dataplane.ApplyOptions{KeepOrphans: true, Retry: true})
	if strings.Contains(k.String(), "fd00:96::10") {
		t.Fatal("a Service that an input deleted is still served")
	}
	apply(t, m)
	if diff := cmp.Diff(clean(t, config()).String(), k.String()); diff != "" {
		t.Errorf("the orphan left something (-want +got):\n%s", diff)
	}
}

// tail is what stands behind the rules of Services in nat KUBE-SERVICES.
const tail = `! -d 127.0.0.0/8 -m comment --comment "kubernetes service nodeports; NOTE: this must be the last rule in this chain" -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS`

// disorders are what a dispatch chain may be found as: its whole content.
var disorders = map[string]func(lines []string) []string{
	"nothing in it":        func([]string) []string { return nil },
	"a rule twice":         func(l []string) []string { return append([]string{l[0]}, l...) },
	"the last is not last": func(l []string) []string { return append(slices.Clone(l[1:]), l[0]) },
	"the last twice":       func(l []string) []string { return append(slices.Clone(l), l[len(l)-1]) },
	"no last":              func(l []string) []string { return l[:len(l)-1] },
	"another last":         func(l []string) []string { return append(slices.Clone(l[:len(l)-1]), "-j KUBE-NODEPORTS") },
	"kube-proxy's of ipvs mode": func([]string) []string {
		return []string{
			`-s 127.0.0.0/8 -j RETURN`,
			`-m comment --comment "Kubernetes service cluster ip + port for masquerade purpose" -m set --match-set KUBE-CLUSTER-IP src,dst -j KUBE-MARK-MASQ`,
			`-m addrtype --dst-type LOCAL -j KUBE-NODE-PORT`,
		}
	},
	"a foreign rule among ours": func(l []string) []string { return append([]string{"-s 192.0.2.1/32 -j ACCEPT"}, l...) },
}

// put makes lines the content of a chain, as another program would.
func (k *kernel) put(t *testing.T, f rules.Family, table, chain string, lines []string) {
	t.Helper()
	text := "*" + table + "\n:KUBE-NODE-PORT - [0:0]\n:" + chain + " - [0:0]\n"
	for _, l := range lines {
		text += "-A " + chain + " " + l + "\n"
	}
	if err := k.Load(f, text+"COMMIT\n"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { k.Delete(rules.ChainKey{Family: f, Table: table, Name: "KUBE-NODE-PORT"}) })
}

func TestDispatchChainInDisorderIsWrittenAnew(t *testing.T) {
	plans := []model.ServicePlan{web, service("more", "10.96.0.11", "10.244.0.2")}
	want := clean(t, config(), plans...).chain(t, rules.IPv4, "nat", "KUBE-SERVICES")
	for name, disorder := range disorders {
		t.Run(name, func(t *testing.T) {
			k := clean(t, config(), plans...)
			k.put(t, rules.IPv4, "nat", "KUBE-SERVICES", disorder(k.chain(t, rules.IPv4, "nat", "KUBE-SERVICES")))
			m := begin(t, k, plans...)
			k.forget()
			apply(t, m)
			if diff := cmp.Diff(want, k.chain(t, rules.IPv4, "nat", "KUBE-SERVICES")); diff != "" {
				t.Errorf("rules (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff([][]string{{"update ip nat KUBE-SERVICES"}}, k.batches); diff != "" {
				t.Errorf("writes (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDispatchChainOfFilterInDisorder(t *testing.T) {
	empty := service("empty", "10.96.0.12")
	k := clean(t, config(), empty)
	want := k.chain(t, rules.IPv4, "filter", "KUBE-SERVICES")
	k.put(t, rules.IPv4, "filter", "KUBE-SERVICES", []string{want[0], "-s 192.0.2.1/32 -j ACCEPT", want[0]})
	apply(t, begin(t, k, empty))
	if diff := cmp.Diff(want, k.chain(t, rules.IPv4, "filter", "KUBE-SERVICES")); diff != "" {
		t.Errorf("rules (-want +got):\n%s", diff)
	}
}

// A single rule of a Service that is gone goes as a single rule.
func TestStaleRuleOfADispatchChain(t *testing.T) {
	k := clean(t, config(), web)
	lines := k.chain(t, rules.IPv4, "nat", "KUBE-SERVICES")
	stale := `-d 10.96.0.99/32 -p tcp -m comment --comment "default/old cluster IP" -m tcp --dport 80 -j ` + rules.Targets(lines[0])[0]
	k.put(t, rules.IPv4, "nat", "KUBE-SERVICES", append([]string{stale}, lines...))
	m := begin(t, k, web)
	k.forget()
	apply(t, m)
	if diff := cmp.Diff(lines, k.chain(t, rules.IPv4, "nat", "KUBE-SERVICES")); diff != "" {
		t.Errorf("rules (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([][]string{{"delete rule ip nat KUBE-SERVICES -j " + rules.Targets(lines[0])[0]}}, k.batches); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
}

// While input is missing, the owner of other rules is unknown, even if the chain has other faults.
func TestOrphansStayInAChainThatIsWrittenAnew(t *testing.T) {
	orphan := service("unread", "10.96.0.20", "10.244.0.9")
	for name, disorder := range disorders {
		if strings.Contains(name, "nothing") || strings.Contains(name, "ipvs mode") {
			continue // there is no orphan left
		}
		t.Run(name, func(t *testing.T) {
			k := clean(t, config(), web, orphan)
			want := k.chain(t, rules.IPv4, "nat", "KUBE-SERVICES")
			k.put(t, rules.IPv4, "nat", "KUBE-SERVICES", disorder(want))
			m := begin(t, k, web)
			for range 2 {
				m.Apply(t.Context(), dataplane.ApplyOptions{KeepOrphans: true, Retry: true})
			}
			got := k.chain(t, rules.IPv4, "nat", "KUBE-SERVICES")
			if got[len(got)-1] != tail {
				t.Errorf("the last rule is %s", got[len(got)-1])
			}
			slices.Sort(want)
			if diff := cmp.Diff(want, slices.Sorted(slices.Values(got))); diff != "" {
				t.Errorf("rules (-want +got):\n%s", diff)
			}
			apply(t, m)
			if diff := cmp.Diff(clean(t, config(), web).canonical(t), k.canonical(t), ignoring("KUBE-NODE-PORT")); diff != "" {
				t.Errorf("when all is known (-want +got):\n%s", diff)
			}
		})
	}
}

// ignoring leaves a foreign chain out of a comparison.
func ignoring(chain string) cmp.Option {
	return cmp.FilterPath(func(p cmp.Path) bool {
		k, ok := p.Last().(cmp.MapIndex)
		return ok && strings.HasSuffix(k.Key().String(), " "+chain)
	}, cmp.Ignore())
}

// Another address for NodePorts is one chain, with all that is in it.
func TestAddressOfNodePortsChanges(t *testing.T) {
	c := config()
	c.Everywhere = nil
	k := newKernel()
	m := start(t, k, c, web)
	apply(t, m)
	k.forget()
	h := host()
	h.NodePorts = h.NodePorts[:1]
	m.SetHost(h)
	apply(t, m)
	if diff := cmp.Diff([][]string{{"update ip nat KUBE-SERVICES", "update ip6 nat KUBE-SERVICES"}}, k.batches); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
	if got := k.chain(t, rules.IPv4, "nat", "KUBE-SERVICES"); len(got) != 2 || !strings.HasPrefix(got[0], "-d 10.96.0.10/32 ") || !strings.HasPrefix(got[1], "-d 192.168.0.1/32 ") {
		t.Errorf("rules %q", got)
	}
}

// Single rules are dearer than the chain when a quarter of it changes.
func TestManyChangesWriteTheChainWhole(t *testing.T) {
	for _, tt := range []struct {
		changed int
		whole   bool
	}{{32, false}, {50, false}, {51, true}} {
		k := newKernel()
		m := begin(t, k)
		for i := range 400 {
			m.Set(service(fmt.Sprint("svc", i), fmt.Sprintf("10.96.%d.%d", i>>8, i&255), "10.244.0.1"))
		}
		apply(t, m)
		k.forget()
		for i := range tt.changed {
			m.Set(service(fmt.Sprint("svc", i), fmt.Sprintf("10.97.0.%d", i), "10.244.0.1"))
		}
		apply(t, m)
		// Each Service that moves is a rule that comes and one that goes.
		if got := slices.Contains(slices.Concat(k.batches...), "update ip nat KUBE-SERVICES"); got != tt.whole || len(k.batches) > 2 {
			t.Errorf("%d of 400 moved: whole %t, %d writes", tt.changed, got, len(k.batches))
		}
		if got := len(k.chain(t, rules.IPv4, "nat", "KUBE-SERVICES")); got != 401 {
			t.Errorf("%d rules, want 401", got)
		}
	}
}

func TestSweepLeavesNothingOfOurs(t *testing.T) {
	foreign := "*nat\n:CNI-HOSTPORT - [0:0]\n-A PREROUTING -j CNI-HOSTPORT\n-A CNI-HOSTPORT -p tcp -m tcp --dport 99 -j ACCEPT\nCOMMIT\n" +
		"*filter\n:KUBE-FIREWALL - [0:0]\n-A INPUT -j KUBE-FIREWALL\n-A KUBE-FIREWALL -m mark --mark 0x8000/0x8000 -j DROP\nCOMMIT\n"
	k := newKernel()
	if err := k.Load(rules.IPv4, foreign); err != nil {
		t.Fatal(err)
	}
	before := k.String()
	apply(t, begin(t, k, slices.Concat(everyKind(), many(50))...))
	k.tables.Add(nftables.Key{Family: "ip", Name: "kube-proxy"})
	counted := k.Counters()
	m := iptables.New(zap.NewNop(), config(), k.deps())
	if err := dataplane.Sweep(t.Context(), m, func(dataplane.Result) {}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, k.String()); diff != "" {
		t.Errorf("kernel (-before +after):\n%s", diff)
	}
	// A listing at first, one of the hooks and one at the end, each family by itself.
	if now := k.Counters(); now.Restore-counted.Restore > 4 || now.Save-counted.Save > 6 || now.Jump != counted.Jump {
		t.Errorf("%d processes of restore, %d of save and %d for hooks, for two families", now.Restore-counted.Restore, now.Save-counted.Save, now.Jump-counted.Jump)
	}
	if got := k.tables.String(); !strings.Contains(got, "table ip kube-proxy") {
		t.Error("a table of another program went with ours")
	}
}

// Rows that a mode wanted before Clear are dropped.
func TestClear(t *testing.T) {
	k := newKernel()
	m := begin(t, k, everyKind()...)
	apply(t, m)
	m.Clear()
	m.SetHost(host())
	apply(t, m)
	if got := k.String(); got != "" {
		t.Errorf("left:\n%s", got)
	}
}

func TestServes(t *testing.T) {
	k := newKernel()
	if begin(t, k, web).CarriesServices() {
		t.Error("an empty kernel serves")
	}
	apply(t, begin(t, k))
	if begin(t, k, web).CarriesServices() {
		t.Error("chains without a Service serve")
	}
	apply(t, begin(t, k, web))
	if !begin(t, k).CarriesServices() {
		t.Error("a Service is not seen")
	}
	k = newKernel()
	k.tables.Add(nftables.Key{Family: "ip6", Name: "kube-proxy"})
	if !begin(t, k).CarriesServices() {
		t.Error("the table of nftables mode is not seen")
	}
}

func TestConflictDoesNotMix(t *testing.T) {
	k := newKernel()
	m := begin(t, k, web)
	late := service("z-late", "10.96.0.10", "10.244.9.9")
	if conflicts := m.Set(late); len(conflicts) != 1 || len(m.Frontends().Conflicts()) != 1 {
		t.Errorf("conflicts %v", conflicts)
	}
	apply(t, m)
	if diff := cmp.Diff(clean(t, config(), web).String(), k.String()); diff != "" {
		t.Errorf("the loser left something (-want +got):\n%s", diff)
	}
	m.Set(gone("web"))
	apply(t, m)
	if diff := cmp.Diff(clean(t, config(), late).String(), k.String()); diff != "" {
		t.Errorf("the winner left (-want +got):\n%s", diff)
	}
}

// A Service has one NodePort, on however many addresses of the node.
func TestNodePortIsOneRule(t *testing.T) {
	p := compile(build.Service("web", build.IPs("10.96.0.1"), build.Port("", 80), nodePort(30080)), backends(model.TCP, "web", "10.244.0.1"))
	if n := len(clean(t, config(), p).chain(t, rules.IPv4, "nat", "KUBE-NODEPORTS")); n != 1 {
		t.Errorf("%d rules", n)
	}
}

func TestTablesOfNftablesModeGoLast(t *testing.T) {
	four, six := nftables.Key{Family: "ip", Name: "kube-proxy"}, nftables.Key{Family: "ip6", Name: "kube-proxy"}
	k := newKernel()
	k.tables.Add(four, six, nftables.Key{Family: "inet", Name: "kube-proxy"}, nftables.Key{Family: "ip", Name: "filter"})
	all := k.tables.String()
	broken := rules.ChainKey{Family: rules.IPv4, Table: "nat", Name: "KUBE-SERVICES"}
	k.Plan.FailChains = map[rules.ChainKey]error{broken: rules.ErrBusy}
	m := begin(t, k, web)
	if r := m.Apply(t.Context(), dataplane.ApplyOptions{Retry: true}); r.Pending == 0 || k.tables.String() != all {
		t.Errorf("%d rows pending, and of the tables are left\n%s", r.Pending, k.tables)
	}
	k.Plan.FailChains = nil
	m.Apply(t.Context(), dataplane.ApplyOptions{KeepOrphans: true, Retry: true})
	if k.tables.String() != all {
		t.Errorf("input is missing, and of the tables are left\n%s", k.tables)
	}
	k.tables.FailCall(1, nftables.ErrBusy)
	if r := m.Apply(t.Context(), dataplane.ApplyOptions{Retry: true}); r.Pending != 2 || r.Total().Err() == nil {
		t.Errorf("%d rows pending (%v), want two tables", r.Pending, r.Total().Err())
	}
	apply(t, m)
	if got, want := k.tables.String(), "table inet kube-proxy\ntable ip filter\n"; !sameLines(got, want) {
		t.Errorf("tables\n%s, want\n%s", got, want)
	}
	if m.CarriesServices(); !slices.Equal(k.reaches(t, rules.IPv4, "10.96.0.10"), []string{"10.244.0.1:8080", "10.244.1.1:8080"}) {
		t.Error("web is not served")
	}
}

func sameLines(a, b string) bool {
	return slices.Equal(slices.Sorted(strings.Lines(a)), slices.Sorted(strings.Lines(b)))
}

// A node of one family leaves the other alone.
func TestOtherFamilyIsNotOurs(t *testing.T) {
	k := newKernel()
	apply(t, begin(t, k, everyKind()...))
	k.tables.Add(nftables.Key{Family: "ip6", Name: "kube-proxy"})
	six := k.Save(rules.IPv6)
	c := config()
	c.Families = []model.Family{model.IPv4}
	apply(t, start(t, k, c))
	if diff := cmp.Diff(six, k.Save(rules.IPv6)); diff != "" || k.tables.String() == "" {
		t.Errorf("tables %q, rules of IPv6 (-before +after):\n%s", k.tables, diff)
	}
}

// flowsOf runs plans one after the other and wants the orders of the last.
func flowsOf(t *testing.T, k *kernel, m *iptables.Mode, when string, p model.ServicePlan, want map[string]string) {
	t.Helper()
	k.orders = map[string]string{}
	m.Set(p)
	apply(t, m)
	if diff := cmp.Diff(want, k.orders); diff != "" {
		t.Errorf("%s: orders (-want +got):\n%s", when, diff)
	}
}

func TestFlowsOfUDP(t *testing.T) {
	const key, a, b, c = "10.96.0.53:80/udp", "10.244.0.1", "10.244.0.2", "10.244.0.3"
	dns := func(endpoints ...string) model.ServicePlan { return over(model.UDP, "dns", "10.96.0.53", endpoints...) }
	keep := func(addrs ...string) map[string]string {
		text := "keep"
		for _, x := range addrs {
			text += " " + x + ":8080"
		}
		return map[string]string{key: text}
	}
	k := newKernel()
	m := begin(t, k)
	flowsOf(t, k, m, "it comes", dns(a, b), keep(a, b))
	flowsOf(t, k, m, "one more endpoint", dns(a, b, c), map[string]string{})
	flowsOf(t, k, m, "one less", dns(a, c), keep(a, c))
	if last := k.calls[len(k.calls)-1]; last != "order flows" {
		t.Errorf("ordered before the kernel had it: %v", k.calls)
	}
	flowsOf(t, k, m, "another one", dns(a, b), keep(a, b))
	flowsOf(t, k, m, "none", dns(), keep())
	flowsOf(t, k, m, "the first again", dns(c), keep(c))
	flowsOf(t, k, m, "nothing new", dns(c), map[string]string{})
	flowsOf(t, k, m, "it goes", gone("dns"), map[string]string{key: "unserved"})
}

// TestFlowsWithoutAConnection: a client that dialled before the Service was there, or an endpoint that is gone, dials
// again; established connections stay.
func TestFlowsWithoutAConnection(t *testing.T) {
	for _, proto := range []model.Protocol{model.TCP, model.SCTP} {
		const a, b, c = "10.244.0.1", "10.244.0.2", "10.244.0.3"
		key := "10.96.0.10:80/" + proto.String()
		web := func(endpoints ...string) model.ServicePlan { return over(proto, "web", "10.96.0.10", endpoints...) }
		keep := func(addrs ...string) map[string]string {
			text := "spare connections, keep"
			for _, x := range addrs {
				text += " " + x + ":8080"
			}
			return map[string]string{key: text}
		}
		k := newKernel()
		m := begin(t, k)
		flowsOf(t, k, m, "it comes", web(a, b), keep(a, b))
		flowsOf(t, k, m, "one more endpoint", web(a, b, c), map[string]string{})
		flowsOf(t, k, m, "one less", web(a, c), keep(a, c))
		if last := k.calls[len(k.calls)-1]; last != "order flows" {
			t.Errorf("ordered before the kernel had it: %v", k.calls)
		}
		kept := web(c)
		kept.Frontends[0].Kept = []netip.AddrPort{netip.MustParseAddrPort(a + ":8080")}
		flowsOf(t, k, m, "one finishes what it has", kept, map[string]string{})
		flowsOf(t, k, m, "and is gone", web(c), keep(c))
		flowsOf(t, k, m, "none", web(), keep())
		flowsOf(t, k, m, "the first again", web(c), keep(c))
		flowsOf(t, k, m, "it goes", gone("web"), map[string]string{})
	}
}

// TestFlowsWaitForJumps: while no packet is led to our rules, clients begin untranslated flows.
func TestFlowsWaitForJumps(t *testing.T) {
	k := newKernel()
	m := begin(t, k)
	k.Plan.FailJumps = map[rules.JumpKey]error{{Family: rules.IPv4, Table: "nat", Hook: "PREROUTING", Target: "KUBE-SERVICES"}: rules.ErrBusy}
	m.Set(web)
	m.Apply(t.Context(), dataplane.ApplyOptions{Retry: true})
	if len(k.orders) != 0 {
		t.Errorf("ordered %v without a jump", k.orders)
	}
	k.Plan.FailJumps = nil
	apply(t, m)
	if len(k.orders) == 0 {
		t.Error("ordered nothing when the jump was there")
	}
}

// TestFlowsOfClientsOutside: under a policy Local clients of this node are answered by any endpoint, and others are not.
func TestFlowsOfClientsOutside(t *testing.T) {
	plan := func(local bool) model.ServicePlan {
		opts := []func(*model.Service){build.IPs("10.96.0.53"), build.PortOver(model.UDP, "", 80), balancer("203.0.113.7")}
		if local {
			opts = append(opts, externalLocal())
		}
		return compile(build.Service("dns", opts...), backends(model.UDP, "dns", "10.244.0.1", "10.244.1.1"))
	}
	for name, tt := range map[string]struct {
		known bool
		want  string
	}{
		"pods are known":     {true, "keep 10.244.0.1:8080 near 10.244.1.1:8080 from 10.244.0.0/16"},
		"pods are not known": {false, "keep 10.244.0.1:8080"},
	} {
		t.Run(name, func(t *testing.T) {
			k, c := newKernel(), config()
			if !tt.known {
				c.Local = netfilter.LocalPods{Mode: netfilter.LocalBridge, Interface: "cbr0"}
			}
			m := start(t, k, c, plan(false))
			apply(t, m)
			k.orders = map[string]string{}
			m.Set(plan(true))
			apply(t, m)
			if got := k.orders["203.0.113.7:80/udp"]; !strings.HasPrefix(got, tt.want) || !tt.known && got != tt.want {
				t.Errorf("the policy became Local, ordered %q, want %q", got, tt.want)
			}
		})
	}
}

// Changes while no agent ran are unknown.
func TestFlowsAfterARestart(t *testing.T) {
	k := newKernel()
	dns := over(model.UDP, "dns", "10.96.0.53", "10.244.0.1")
	apply(t, begin(t, k, dns))
	flowsOf(t, k, begin(t, k, dns), "after a restart", dns, map[string]string{"10.96.0.53:80/udp": "keep 10.244.0.1:8080"})
}

// Clients of this node dial the load balancer and are answered by any endpoint.
func TestFlowsThatAreTakenToAllEndpoints(t *testing.T) {
	plan := func(internal bool, endpoints ...string) model.ServicePlan {
		svc := build.Service("dns", build.IPs("10.96.0.53"), build.PortOver(model.UDP, "", 80), balancer("203.0.113.7"), externalLocal())
		svc.InternalLocal = internal
		return compile(svc, backends(model.UDP, "dns", endpoints...))
	}
	for _, internal := range []bool{false, true} {
		k := newKernel()
		m := begin(t, k, plan(internal, "10.244.0.1", "10.244.1.1"))
		apply(t, m)
		k.orders = map[string]string{}
		m.Set(plan(internal, "10.244.0.1"))
		apply(t, m)
		if got, want := k.orders["203.0.113.7:80/udp"], "keep 10.244.0.1:8080"; got != want {
			t.Errorf("internal policy Local %t: an endpoint elsewhere left, and of the load balancer was ordered %q, want %q", internal, got, want)
		}
	}
}

func TestFlowsWaitForTheKernel(t *testing.T) {
	const key = "10.96.0.53:80/udp"
	before, after := over(model.UDP, "dns", "10.96.0.53", "10.244.0.1", "10.244.0.2"), over(model.UDP, "dns", "10.96.0.53", "10.244.0.1")
	t.Run("orphans are kept", func(t *testing.T) {
		k := newKernel()
		m := begin(t, k, before)
		apply(t, m)
		k.orders = map[string]string{}
		m.Set(after)
		m.Apply(t.Context(), dataplane.ApplyOptions{KeepOrphans: true, Retry: true})
		if len(k.orders) != 0 {
			t.Errorf("ordered %v", k.orders)
		}
		apply(t, m)
		if k.orders[key] != "keep 10.244.0.1:8080" {
			t.Errorf("ordered %v when all is known", k.orders)
		}
	})
	t.Run("its rows fail", func(t *testing.T) {
		k := newKernel()
		m := begin(t, k, before, web)
		apply(t, m)
		pool, _ := chainsOf(t, before)
		name := strings.Fields(pool)[2]
		k.Plan.FailChains = map[rules.ChainKey]error{{Family: rules.IPv4, Table: "nat", Name: name}: rules.ErrBusy}
		k.orders = map[string]string{}
		m.Set(after)
		m.Apply(t.Context(), dataplane.ApplyOptions{Retry: true})
		m.Set(service("web", "10.96.0.10", "10.244.0.1"))
		m.Apply(t.Context(), dataplane.ApplyOptions{}) // the broken row rests
		if _, ordered := k.orders[key]; ordered {
			t.Errorf("ordered %v while flows still go there", k.orders)
		}
		k.Plan.FailChains = nil
		apply(t, m)
		if k.orders[key] != "keep 10.244.0.1:8080" {
			t.Errorf("ordered %v after the row was written", k.orders)
		}
	})
	t.Run("rows of another Service fail for good", func(t *testing.T) {
		k := newKernel()
		m := begin(t, k, before)
		apply(t, m)
		pool, _ := chainsOf(t, web)
		k.Plan.FailChains = map[rules.ChainKey]error{{Family: rules.IPv4, Table: "nat", Name: strings.Fields(pool)[2]}: rules.ErrUnsupported}
		k.orders = map[string]string{}
		m.Set(web)
		m.Set(after)
		m.Apply(t.Context(), dataplane.ApplyOptions{Retry: true})
		if k.orders[key] != "keep 10.244.0.1:8080" {
			t.Errorf("ordered %v", k.orders)
		}
	})
}

// While the addresses of Services are bound, this machine dials them from themselves.
func TestBoundAddressesAreMasqueraded(t *testing.T) {
	const rule = "-m conntrack --ctstate DNAT -m addrtype --src-type LOCAL -j MASQUERADE --random-fully"
	k, c, bound := newKernel(), config(), true
	c.Bound = func() bool { return bound }
	m := iptables.New(zap.NewNop(), c, k.deps())
	if err := m.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, want := range []int{2, 0} { // one a family
		apply(t, m)
		if got := strings.Count(k.String(), rule); got != want {
			t.Errorf("bound %t: %d rules, want %d", bound, got, want)
		}
		bound = false
		m.Rebase()
	}
}
