package ipvs_test

import (
	"fmt"
	"math"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/addresses"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/migrate"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

var (
	range4 = netip.MustParsePrefix("10.96.0.0/16")
	range6 = netip.MustParsePrefix("fd00:96::/112")
	beside = outside("beside", "203.0.113.1")
)

// outside is a Service with an address outside of the ranges.
func outside(name, vip string) model.ServicePlan {
	p := service(name, vip, "10.244.0.1:8080")
	p.Frontends[0].Kind = model.KindExternalIP
	return p
}

// beginWith is begin with another binding and another machine.
func beginWith(t testing.TB, k *kernel, b addresses.Binding, h model.Host, plans ...model.ServicePlan) *ipvs.Mode {
	t.Helper()
	c := config()
	c.Binding, c.ServiceCIDRs = b, []netip.Prefix{range6, range4}
	m := ipvs.New(zap.NewNop(), c, k.deps())
	m.SetHost(h)
	for _, p := range plans {
		m.Set(p)
	}
	for _, do := range []func() error{func() error { return m.Start(t.Context()) }, func() error { return m.Load(t.Context()) }} {
		if err := do(); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

// settle applies until nothing is pending, as the agent does.
func settle(t testing.TB, m *ipvs.Mode) {
	t.Helper()
	var r dataplane.Result
	for least, idle := math.MaxInt, 0; idle < 50; idle++ { // a pass has a limit of time
		r = m.Apply(t.Context(), dataplane.ApplyOptions{Retry: true})
		if r.Pending == 0 {
			return
		}
		if r.Pending < least {
			least, idle = r.Pending, 0
		}
	}
	t.Fatalf("%d rows pending: %v", r.Pending, r.Total().Err())
}

const (
	routes       = "ip route add local 10.96.0.0/16 dev lo proto 73\nip route add local fd00:96::/112 dev lo proto 73\n"
	besideBound  = "ip addr add 203.0.113.1/32 dev kube-ipvs0\n"
	addressesAll = "ip addr add 10.96.0.10/32 dev kube-ipvs0\n" + besideBound + "ip addr add fd00:96::10/128 dev kube-ipvs0 nodad\n"
)

func wantLinks(t *testing.T, k *kernel, want string) {
	t.Helper()
	if diff := cmp.Diff(want, k.links.String()); diff != "" {
		t.Errorf("addresses and routes (-want +got):\n%s", diff)
	}
}

func TestRoutesInPlaceOfAddresses(t *testing.T) {
	k := newKernel()
	m := beginWith(t, k, addresses.BindRoute, host(), web, dual, beside)
	apply(t, m)
	wantLinks(t, k, besideBound+routes)
	want := []string{"write sets", "write members", "write chains", "write jumps", "write servers", "write destinations", "write routes", "write addresses"}
	if diff := cmp.Diff(want, writes(k.calls)); diff != "" {
		t.Errorf("first sync (-want +got):\n%s", diff)
	}
	mustBeMarked(t, k)
	var text strings.Builder
	if err := m.WriteRows(&text, "addresses"); err != nil || text.String() != k.links.String() {
		t.Errorf("printed %v\n%s", err, &text)
	}
	k.calls = nil
	for _, p := range []model.ServicePlan{gone("web"), gone("dual"), gone("beside")} {
		m.Set(p)
	}
	apply(t, m)
	wantLinks(t, k, routes)
	k.calls = nil
	again := beginWith(t, k, addresses.BindRoute, host())
	if r := apply(t, again); len(r.Stages) != 0 {
		t.Errorf("a restart wrote %+v", r.Stages)
	}
	again.Clear()
	settle(t, again)
	wantLinks(t, k, "")
}

// local fails the test if one of the addresses is neither bound nor routed, or a range is
// routed that the rules do not guard.
func (k *kernel) local(t *testing.T, vips ...string) {
	t.Helper()
	text := k.links.String()
	for _, vip := range vips {
		p := range4
		if strings.Contains(vip, ":") {
			p = range6
		}
		if !strings.Contains(text, "add "+vip+"/") && !strings.Contains(text, "local "+p.String()+" ") {
			t.Fatalf("%s is not local after %d calls:\n%s", vip, len(k.calls), text)
		}
	}
	chains, _, err := k.rules.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for f, p := range map[rules.Family]netip.Prefix{rules.IPv4: range4, rules.IPv6: range6} {
		guard := chains[rules.ChainKey{Family: f, Table: "filter", Name: "KUBE-IPVS-FILTER"}].Rules
		if strings.Contains(text, "local "+p.String()+" ") && !strings.Contains(guard, "-d "+p.String()+" ") {
			t.Fatalf("%s is routed and not guarded after %d calls:\n%s", p, len(k.calls), guard)
		}
	}
}

// The binding changes in place in both directions, without failing calls and with each call failing
// once: an address is always local, and a routed range is guarded.
func TestBindingChangesInPlace(t *testing.T) {
	for _, tt := range []struct {
		from, to addresses.Binding
		want     string
	}{
		{addresses.BindAddress, addresses.BindRoute, besideBound + routes},
		{addresses.BindRoute, addresses.BindAddress, addressesAll},
	} {
		t.Run(fmt.Sprintf("%s to %s", tt.from, tt.to), func(t *testing.T) {
			for n, last := 0, 1; n <= last; n++ {
				k := newKernel()
				settle(t, beginWith(t, k, tt.from, host(), web, dual, beside))
				k.calls = nil
				m := beginWith(t, k, tt.to, host(), web, dual, beside)
				k.calls, k.failAt = nil, n
				k.watch = func() { k.local(t, "10.96.0.10", "fd00:96::10") }
				settle(t, m)
				k.watch()
				wantLinks(t, k, tt.want)
				if text := k.rules.String(); strings.Contains(text, "-d "+range4.String()) != (tt.to == addresses.BindRoute) {
					t.Errorf("rules guard %s, or do not, with %s:\n%s", range4, tt.to, text)
				}
				if n == 0 {
					last = len(k.calls)
				}
			}
		})
	}
}

// A route whose deletion lost its reply is deleted again in the same pass, together with its
// guards: nothing is pending afterwards, so no other pass would do it.
func TestGuardGoesWithALostReply(t *testing.T) {
	k := newKernel()
	settle(t, beginWith(t, k, addresses.BindRoute, host(), web, dual, beside))
	m := beginWith(t, k, addresses.BindAddress, host(), web, dual, beside)
	k.lose = true
	settle(t, m)
	if k.lose {
		t.Error("no reply was lost")
	}
	wantLinks(t, k, addressesAll)
	for _, p := range []netip.Prefix{range4, range6} {
		if text := k.rules.String(); strings.Contains(text, "-d "+p.String()) {
			t.Errorf("rules guard %s:\n%s", p, text)
		}
	}
}

// While some input cannot be read, what was found stays, and what guards it.
func TestRoutesStayWhileInputIsMissing(t *testing.T) {
	k := newKernel()
	settle(t, beginWith(t, k, addresses.BindRoute, host(), web, dual))
	m := beginWith(t, k, addresses.BindAddress, host(), dual)
	for range 3 {
		m.Apply(t.Context(), dataplane.ApplyOptions{KeepOrphans: true, Retry: true})
		k.local(t, "10.96.0.10", "fd00:96::10")
	}
	m.Set(web)
	settle(t, m)
	wantLinks(t, k, strings.ReplaceAll(addressesAll, besideBound, ""))
}

func TestRangeOfOthersIsNotRouted(t *testing.T) {
	for name, occupy := range map[string]func(h *model.Host){
		"an address of this machine": func(h *model.Host) { h.Links[netip.MustParseAddr("10.96.7.7")] = "eth0" },
		"a gateway":                  func(h *model.Host) { h.Gateways = []netip.Addr{netip.MustParseAddr("10.96.0.1")} },
		"an address of another node": func(h *model.Host) { h.Nodes = map[netip.Addr]string{netip.MustParseAddr("10.96.9.9"): "node-b"} },
		"pods":                       func(h *model.Host) { h.Node.PodCIDRs = []netip.Prefix{netip.MustParsePrefix("10.96.128.0/24")} },
	} {
		t.Run(name, func(t *testing.T) {
			occupied, k := host(), newKernel()
			occupy(&occupied)
			m := beginWith(t, k, addresses.BindRoute, host(), web, dual)
			settle(t, m)
			wantLinks(t, k, routes)
			k.watch = func() { k.local(t, "10.96.0.10", "fd00:96::10") }
			m.SetHost(occupied)
			settle(t, m)
			wantLinks(t, k, "ip addr add 10.96.0.10/32 dev kube-ipvs0\nip route add local fd00:96::/112 dev lo proto 73\n")
			m.SetHost(host())
			settle(t, m)
			wantLinks(t, k, routes)
		})
	}
}

func TestLostRouteIsMended(t *testing.T) {
	k := newKernel()
	m := beginWith(t, k, addresses.BindRoute, host(), web, dual)
	settle(t, m)
	k.links.LoseRoute(range4)
	if got := round(t, m); got != 1 {
		t.Errorf("the audit found %d rows, want 1", got)
	}
	settle(t, m)
	wantLinks(t, k, routes)
	k.links.LoseRoute(range6)
	m.RouteLost(range6)
	settle(t, m)
	wantLinks(t, k, routes)
	k.links.LoseRoute(range6)
	if err := m.ReloadAddresses(t.Context()); err != nil {
		t.Fatal(err)
	}
	settle(t, m)
	wantLinks(t, k, routes)
}

// A route of another program to a range is not ours: addresses stay bound in spite of it.
func TestForeignRouteIsNotRelied(t *testing.T) {
	k := newKernel()
	settle(t, beginWith(t, k, addresses.BindAddress, host(), web, dual, beside))
	k.links.AddRouteByHand(range4)
	m := beginWith(t, k, addresses.BindRoute, host(), web, dual, beside)
	r := m.Apply(t.Context(), dataplane.ApplyOptions{Retry: true})
	if r.Pending == 0 || r.Total().Err() == nil {
		t.Errorf("%d rows pending: %v; want the route refused", r.Pending, r.Total().Err())
	}
	wantLinks(t, k, "ip addr add 10.96.0.10/32 dev kube-ipvs0\n"+besideBound+"ip route add local fd00:96::/112 dev lo proto 73\n")
	k.links.RemoveRouteByHand(range4)
	settle(t, m)
	wantLinks(t, k, besideBound+routes)
}

// A kube-proxy in ipvs mode has no routes: addresses that carry until it starts are bound.
func TestHandOverOfRoutes(t *testing.T) {
	const step = 7 // no divisor of anything here: each kind of call has its turn
	for n, last := 0, 1; n <= last; n += step {
		k := newKernel()
		settle(t, beginWith(t, k, addresses.BindRoute, host(), web, dual, beside))
		k.calls, k.failAt = nil, n
		k.watch = func() { k.local(t, "10.96.0.10", "fd00:96::10") }
		failed := 0
		for range 4 {
			m := ipvs.New(zap.NewNop(), config(), k.deps())
			if err := dataplane.Sweep(t.Context(), m.HandOver(migrate.TargetIPVS), func(dataplane.Result) {}); err == nil {
				break
			}
			failed++
		}
		if failed > 1 {
			t.Errorf("call %d failed, and the clean-up after it", n)
		}
		k.watch()
		wantLinks(t, k, addressesAll)
		if n == 0 {
			last = len(k.calls)
		}
	}
}

// Over IPv6 the host does not dial from what it dials, so it is masqueraded by what it is.
func TestHostIsMasqueradedOverIPv6(t *testing.T) {
	const own = "-m addrtype --src-type LOCAL -m comment --comment \"Kubernetes service cluster ip + port for masquerade purpose\" -m set --match-set KUBE-%sCLUSTER-IP dst,dst -j KUBE-MARK-MASQ"
	for binding, want := range map[addresses.Binding]bool{addresses.BindAddress: false, addresses.BindRoute: true} {
		k := newKernel()
		settle(t, beginWith(t, k, binding, host(), web, dual))
		chains, _, err := k.rules.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		text := func(f rules.Family) string {
			return chains[rules.ChainKey{Family: f, Table: "nat", Name: "KUBE-SERVICES"}].Rules
		}
		if got := strings.Contains(text(rules.IPv6), fmt.Sprintf(own, "6-")); got != want {
			t.Errorf("%s: marked over IPv6: %v, want %v\n%s", binding, got, want, text(rules.IPv6))
		}
		if strings.Contains(text(rules.IPv4), "addrtype") {
			t.Errorf("%s: IPv4 has a rule that it does not need\n%s", binding, text(rules.IPv4))
		}
	}
}
