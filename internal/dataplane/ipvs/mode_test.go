package ipvs_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/netfilter"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/ipset"
	"github.com/kube-ipvs/kube-ipvs/ipset/ipsettest"
	"github.com/kube-ipvs/kube-ipvs/scheduler"
)

var rr = scheduler.MustParse("rr")

var (
	web  = service("web", "10.96.0.10", "10.244.0.1:8080", "10.244.1.1:8080")
	dual = service("dual", "fd00:96::10", "[fd00:244::1]:8080")
)

// writes keeps the calls that wrote, without repetitions in a row.
func writes(calls []string) []string {
	calls = slices.DeleteFunc(slices.Clone(calls), func(c string) bool { return !strings.HasPrefix(c, "write") })
	return slices.Compact(calls)
}

func TestOrderOfWrites(t *testing.T) {
	k := newKernel()
	m := begin(t, k, web, dual)
	apply(t, m)
	want := []string{"write sets", "write members", "write chains", "write jumps", "write servers", "write destinations", "write addresses"}
	if diff := cmp.Diff(want, writes(k.calls)); diff != "" {
		t.Errorf("first sync (-want +got):\n%s", diff)
	}

	k.calls = nil
	m.Set(gone("web"))
	apply(t, m)
	want = []string{"write addresses", "write servers", "write members"}
	if diff := cmp.Diff(want, writes(k.calls)); diff != "" {
		t.Errorf("deletion: the kernel drops destinations with their server (-want +got):\n%s", diff)
	}
}

// mustBeMarked fails for a virtual server whose address is not marked as ours, and for a bound
// address without a mark. No later process would remove these, and the filter would not guard them.
func mustBeMarked(t *testing.T, k *kernel) {
	t.Helper()
	all, err := k.servers.ListServers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	addrs, err := k.links.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for key := range all {
		addrs[key.Addr] = struct{}{}
	}
	for a := range addrs {
		if s := k.sets.String(); !strings.Contains(s, "IPVS-IPS "+a.String()+"\n") && !strings.Contains(s, "NODE-PORT-IPS "+a.String()+"\n") {
			t.Errorf("%s is served without a mark:\n%s", a, k)
		}
	}
}

func TestRestartWritesNothing(t *testing.T) {
	k := newKernel()
	apply(t, begin(t, k, web, dual))
	text := k.String()
	k.calls = nil
	if r := apply(t, begin(t, k, web, dual)); len(r.Stages) != 0 {
		t.Errorf("wrote %+v", r.Stages)
	}
	if got := writes(k.calls); len(got) != 0 {
		t.Errorf("calls %v", got)
	}
	if diff := cmp.Diff(text, k.String()); diff != "" {
		t.Errorf("kernel (-before +after):\n%s", diff)
	}
}

func TestOrphansGoOnlyWhenAllInputIsKnown(t *testing.T) {
	k := newKernel()
	apply(t, begin(t, k, web, dual))
	m := begin(t, k, dual) // web is not told of
	m.Apply(t.Context(), dataplane.ApplyOptions{KeepOrphans: true, Retry: true})
	if !strings.Contains(k.servers.String(), "10.96.0.10:80") || !strings.Contains(k.links.String(), "10.96.0.10/32") {
		t.Fatalf("an orphan was deleted although some input is missing:\n%s", k)
	}
	m.Set(gone("dual"))
	m.Apply(t.Context(), dataplane.ApplyOptions{KeepOrphans: true, Retry: true})
	if strings.Contains(k.servers.String(), "fd00:96::10") {
		t.Fatal("a Service that an input deleted is still served")
	}
	apply(t, m)
	if strings.Contains(k.String(), "10.96.0.10") {
		t.Errorf("the orphan stayed:\n%s", k)
	}
}

// A process that dies after each single call of a deletion leaves nothing that
// the next one does not recognise.
func TestDeathInTheMiddleOfADeletion(t *testing.T) {
	for n := 1; ; n++ {
		k := newKernel()
		m := begin(t, k, web, dual)
		apply(t, m)
		m.Set(gone("web"))
		start := len(k.calls)
		ctx, die := context.WithCancel(t.Context())
		k.failAt = start + n
		m.Apply(ctx, dataplane.ApplyOptions{Retry: true})
		die()
		if len(k.calls) < k.failAt {
			if n < 3 {
				t.Fatalf("only %d calls in a deletion", n-1)
			}
			return
		}
		apply(t, begin(t, k, dual))
		if strings.Contains(k.String(), "10.96.0.10") || strings.Contains(k.servers.String(), "10.244.0.1") {
			t.Errorf("call %d (%s) failed, and this stayed:\n%s", n, k.calls[k.failAt-1], k)
		}
	}
}

// A found server whose address is bound but not marked goes before its address.
func TestDeathAmongUnmarkedOrphans(t *testing.T) {
	orphan := vserver.ServerChange{Op: vserver.Add, Key: webKey, Server: vserver.Server{Scheduler: "wlc"}}
	for n := 1; n < 20; n++ {
		k := newKernel()
		apply(t, begin(t, k, dual))
		mustWrite(t, k.servers.WriteServers(t.Context(), []vserver.ServerChange{orphan}))
		k.links.AddByHand(webKey.Addr)
		m := begin(t, k, dual)
		k.failAt = len(k.calls) + n
		m.Apply(t.Context(), dataplane.ApplyOptions{Retry: true})
		k.failAt = 0
		m = begin(t, k, dual)
		m.Apply(t.Context(), dataplane.ApplyOptions{Retry: true})
		apply(t, m)
		if strings.Contains(k.String(), "10.96.0.10") {
			t.Errorf("call %d failed, and this stayed:\n%s", n, k)
		}
	}
}

// Another program removed the device and the mark while no agent ran: the entry that accepts the
// traffic of the server still marks it as ours.
func TestServerIsKnownByItsEntryAlone(t *testing.T) {
	k := newKernel()
	apply(t, begin(t, k, web, dual))
	k.links.LoseLink()
	if err := k.sets.Delete(t.Context(), "KUBE-IPVS-IPS", ipset.IP(webKey.Addr)); err != nil {
		t.Fatal(err)
	}
	m := begin(t, k, dual)
	m.Apply(t.Context(), dataplane.ApplyOptions{Retry: true})
	apply(t, m)
	if strings.Contains(k.String(), "10.96.0.10") {
		t.Errorf("the server stayed:\n%s", k.servers)
	}
}

func TestForeignServersStay(t *testing.T) {
	k := newKernel()
	foreign := vserver.ServerChange{Op: vserver.Add, Key: vserver.ServerKey{Addr: netip.MustParseAddr("192.0.2.1"), Port: 443, Protocol: 6}, Server: vserver.Server{Scheduler: "wlc"}}
	excluded := foreign
	excluded.Key.Addr = netip.MustParseAddr("10.96.7.7")
	stale := foreign
	stale.Key.Addr = netip.MustParseAddr("10.96.0.99")
	if errs := k.servers.WriteServers(t.Context(), []vserver.ServerChange{foreign, excluded, stale}); errs != nil {
		t.Fatal(errs)
	}
	if _, err := k.links.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	k.links.AddByHand(excluded.Key.Addr)
	k.links.AddByHand(stale.Key.Addr)

	c := config()
	c.ExcludeCIDRs = []netip.Prefix{netip.MustParsePrefix("10.96.7.0/24")}
	m := ipvs.New(zap.NewNop(), c, k.deps())
	if err := m.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	m.Apply(t.Context(), dataplane.ApplyOptions{Retry: true}) // the stale server, then its address
	apply(t, m)
	want := "-A -t 10.96.7.7:443 -s wlc\n-A -t 192.0.2.1:443 -s wlc\n"
	if diff := cmp.Diff(want, k.servers.String()); diff != "" {
		t.Errorf("servers (-want +got):\n%s", diff)
	}
}

func TestSharedAddressStaysUntilTheLastPortLeaves(t *testing.T) {
	k := newKernel()
	two := service("two", "10.96.0.10", "10.244.0.1:8080")
	two.Frontends[0].Key.Port = 443
	m := begin(t, k, web, two)
	apply(t, m)
	m.Set(gone("web"))
	apply(t, m)
	if !strings.Contains(k.links.String(), "10.96.0.10/32") {
		t.Error("the address left with the first of two Services")
	}
	m.Set(gone("two"))
	apply(t, m)
	if strings.Contains(k.links.String(), "10.96.0.10") {
		t.Error("the address stayed after the last Service")
	}
}

func TestOneEndpointIsOneRow(t *testing.T) {
	k := newKernel()
	m := begin(t, k, web, dual)
	apply(t, m)
	k.calls = nil
	m.Set(service("web", "10.96.0.10", "10.244.0.1:8080", "10.244.1.1:8080", "10.244.1.2:8080"))
	r := apply(t, m)
	if len(r.Stages) != 1 || r.Stages[0].Stage != "destinations" || r.Total().Written() != 1 {
		t.Errorf("wrote %+v, want one destination", r.Stages)
	}
	if diff := cmp.Diff([]string{"write destinations"}, k.calls); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}

func TestSchedulerChangesInPlace(t *testing.T) {
	k := newKernel()
	m := begin(t, k, web)
	apply(t, m)
	changed := service("web", "10.96.0.10", "10.244.0.1:8080", "10.244.1.1:8080")
	changed.Frontends[0].Scheduler = scheduler.MustParse("mh")
	changed.Frontends[0].Affinity = 3 * time.Hour
	m.Set(changed)
	r := apply(t, m)
	if r.Total().Updates != 1 || r.Total().Written() != 1 {
		t.Errorf("wrote %+v, want one update", r.Stages)
	}
	if want := "-A -t 10.96.0.10:80 -s mh -p 10800 -b mh-fallback,mh-port"; !strings.Contains(k.servers.String(), want) {
		t.Errorf("servers lack %q:\n%s", want, k.servers)
	}
}

func TestConflictIsReportedAndDoesNotMix(t *testing.T) {
	k := newKernel()
	m := begin(t, k, web)
	late := service("z-late", "10.96.0.10", "10.244.9.9:8080")
	conflicts := m.Set(late)
	apply(t, m)
	if len(conflicts) != 1 || conflicts[0].Loser.Name != "z-late" || len(m.Frontends().Conflicts()) != 1 {
		t.Errorf("conflicts %v", conflicts)
	}
	if strings.Contains(k.servers.String(), "10.244.9.9") {
		t.Error("the loser's backend is served")
	}
}

// drifts are what others may do to the kernel, and how the audit must mend it.
var drifts = map[string]func(t *testing.T, k *kernel){
	"address": func(_ *testing.T, k *kernel) { k.links.LoseAddress(netip.MustParseAddr("10.96.0.10")) },
	"link":    func(_ *testing.T, k *kernel) { k.links.LoseLink() },
	"server and its destinations": func(t *testing.T, k *kernel) {
		mustWrite(t, k.servers.WriteServers(t.Context(), []vserver.ServerChange{{Op: vserver.Delete, Key: webKey}}))
	},
	"all servers": func(t *testing.T, k *kernel) {
		all, _ := k.servers.ListServers(t.Context())
		for key := range all {
			mustWrite(t, k.servers.WriteServers(t.Context(), []vserver.ServerChange{{Op: vserver.Delete, Key: key}}))
		}
	},
	"scheduler": func(t *testing.T, k *kernel) {
		mustWrite(t, k.servers.WriteServers(t.Context(), []vserver.ServerChange{{Op: vserver.Update, Key: webKey, Server: vserver.Server{Scheduler: "wlc"}}}))
	},
	"destination": func(t *testing.T, k *kernel) {
		mustWrite(t, k.servers.WriteDestinations(t.Context(), []vserver.DestinationChange{{Op: vserver.Delete, Key: webDestination}}))
	},
	"weight": func(t *testing.T, k *kernel) {
		mustWrite(t, k.servers.WriteDestinations(t.Context(), []vserver.DestinationChange{{Op: vserver.Update, Key: webDestination}}))
	},
	"strange destination": func(t *testing.T, k *kernel) {
		strange := webDestination
		strange.Addr = netip.MustParseAddr("192.0.2.9")
		mustWrite(t, k.servers.WriteDestinations(t.Context(), []vserver.DestinationChange{{Op: vserver.Add, Key: strange}}))
	},
	"strange server": func(t *testing.T, k *kernel) {
		strange := webKey
		strange.Port = 99
		mustWrite(t, k.servers.WriteServers(t.Context(), []vserver.ServerChange{{Op: vserver.Add, Key: strange, Server: vserver.Server{Scheduler: "rr"}}}))
		mustWrite(t, k.servers.WriteDestinations(t.Context(), []vserver.DestinationChange{{Op: vserver.Add, Key: vserver.DestinationKey{Server: strange, Addr: strange.Addr, Port: 1}}}))
	},
	"entry": func(t *testing.T, k *kernel) {
		if err := k.sets.Flush(t.Context(), "KUBE-CLUSTER-IP"); err != nil {
			t.Fatal(err)
		}
	},
	"strange entry": func(t *testing.T, k *kernel) {
		if err := k.sets.Add(t.Context(), "KUBE-IPVS-IPS", ipset.IP(netip.MustParseAddr("192.0.2.9"))); err != nil {
			t.Fatal(err)
		}
	},
	"chain": func(t *testing.T, k *kernel) {
		key := rules.ChainKey{Family: rules.IPv4, Table: "nat", Name: "KUBE-SERVICES"}
		mustWrite(t, k.rules.WriteChains(t.Context(), []rules.ChainChange{{Op: rules.Update, Key: key}}))
	},
	"jump": func(t *testing.T, k *kernel) {
		key := rules.JumpKey{Family: rules.IPv6, Table: "nat", Hook: "POSTROUTING", Target: "KUBE-POSTROUTING"}
		mustWrite(t, k.rules.WriteJumps(t.Context(), []rules.JumpChange{{Op: rules.Delete, Key: key}}))
	},
}

var (
	webKey         = vserver.ServerKey{Addr: netip.MustParseAddr("10.96.0.10"), Port: 80, Protocol: 6}
	webDestination = vserver.DestinationKey{Server: webKey, Addr: netip.MustParseAddr("10.244.1.1"), Port: 8080}
)

func mustWrite(t *testing.T, errs []error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// round audits until a round is complete.
func round(t *testing.T, m *ipvs.Mode) int {
	t.Helper()
	total := 0
	for done := false; !done; {
		a, err := m.Audit(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		total += a.Drift.Total()
		done = a.Done
	}
	return total
}

// An audit lists rules again when a process has written some, and only then.
func TestAuditListsRulesAfterAWrite(t *testing.T) {
	k := newKernel()
	m := begin(t, k, web)
	apply(t, m)
	lists := func() (n int) {
		k.calls = nil
		round(t, m)
		for _, call := range k.calls {
			if call == "list rules" {
				n++
			}
		}
		return n
	}
	if first, second := lists(), lists(); first != 1 || second != 0 {
		t.Errorf("%d listings after our own write and %d after none, want 1 and 0", first, second)
	}
	if err := k.rules.Load(rules.IPv4, "*nat\n-A POSTROUTING -j ACCEPT\nCOMMIT\n"); err != nil {
		t.Fatal(err)
	}
	if n := lists(); n != 1 {
		t.Errorf("%d listings after a write of another program, want 1", n)
	}
	if err := k.rules.Load(rules.IPv4, "*nat\n-A POSTROUTING -j ACCEPT\nCOMMIT\n"); err != nil {
		t.Fatal(err)
	}
	k.refuse = "list rules"
	if _, err := m.Audit(t.Context(), time.Hour); err == nil {
		t.Error("an audit that could not list rules has no error")
	}
	k.refuse = ""
	if n := lists(); n != 1 {
		t.Errorf("%d listings after one that failed, want 1", n)
	}
}

func TestAuditFindsAndMendsDrift(t *testing.T) {
	for name, damage := range drifts {
		t.Run(name, func(t *testing.T) {
			k := newKernel()
			m := begin(t, k, web, dual)
			apply(t, m)
			if n := round(t, m); n != 0 {
				t.Fatalf("%d rows drifted without a reason", n)
			}
			text := k.String()
			damage(t, k)
			if k.String() == text {
				t.Fatal("nothing was damaged")
			}
			if round(t, m) == 0 {
				t.Error("the audit saw nothing")
			}
			apply(t, m)
			if diff := cmp.Diff(text, k.String()); diff != "" {
				t.Errorf("kernel (-before +after):\n%s", diff)
			}
		})
	}
}

func TestLostServerIsNoticedByItsNextDestination(t *testing.T) {
	k := newKernel()
	m := begin(t, k, web)
	apply(t, m)
	mustWrite(t, k.servers.WriteServers(t.Context(), []vserver.ServerChange{{Op: vserver.Delete, Key: webKey}}))
	m.Set(service("web", "10.96.0.10", "10.244.0.1:8080", "10.244.1.1:8080", "10.244.1.2:8080"))
	m.Apply(t.Context(), dataplane.ApplyOptions{Retry: true})
	apply(t, m)
	if got := strings.Count(k.servers.String(), "-a -t 10.96.0.10:80"); got != 3 {
		t.Errorf("%d destinations came back, want 3:\n%s", got, k.servers)
	}
}

func TestSetOfTheWrongShapeIsReplaced(t *testing.T) {
	for name, wrong := range map[string]ipset.Set{
		"type":     {Name: "KUBE-CLUSTER-IP", Type: ipset.HashIP, Family: ipset.IPv4},
		"family":   {Name: "KUBE-CLUSTER-IP", Type: ipset.HashIPPort, Family: ipset.IPv6},
		"options":  {Name: "KUBE-CLUSTER-IP", Type: ipset.HashIPPort, Family: ipset.IPv4, Options: "timeout 30"},
		"referred": {Name: "KUBE-CLUSTER-IP", Type: ipset.HashIP, Family: ipset.IPv4},
	} {
		t.Run(name, func(t *testing.T) {
			want := newKernel()
			apply(t, begin(t, want, web))

			k := newKernel()
			k.sets.Plant(wrong.WithDefaults())
			if name == "referred" {
				k.sets.Refer(wrong.Name, 1)
				chain := rules.ChainKey{Family: rules.IPv4, Table: "filter", Name: "KUBE-IPVS-FILTER"}
				mustWrite(t, k.rules.WriteChains(t.Context(), []rules.ChainChange{{Op: rules.Add, Key: chain,
					Chain: rules.Chain{Rules: "-m set --match-set KUBE-CLUSTER-IP dst -j RETURN"}}}))
			}
			m := begin(t, k, web)
			if name == "referred" {
				m.Apply(t.Context(), dataplane.ApplyOptions{Retry: true})
				k.sets.Refer(wrong.Name, -1) // the rules that referred were taken out
			}
			apply(t, m)
			if diff := cmp.Diff(want.sets.String(), k.sets.String()); diff != "" {
				t.Errorf("sets (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(want.rules.String(), k.rules.String()); diff != "" {
				t.Errorf("rules (-want +got):\n%s", diff)
			}
		})
	}
}

func TestBiggerSetIsKept(t *testing.T) {
	k := newKernel()
	k.sets.Plant(ipset.Set{Name: "KUBE-CLUSTER-IP", Type: ipset.HashIPPort, Family: ipset.IPv4, HashSize: 4096, MaxElem: 262144})
	m := begin(t, k, web)
	apply(t, m)
	if !strings.Contains(k.sets.String(), "maxelem 262144") {
		t.Errorf("the set was shrunk:\n%s", k.sets)
	}
}

func TestSetGrows(t *testing.T) {
	small := ipset.Set{Name: "KUBE-CLUSTER-IP", Type: ipset.HashIPPort, Family: ipset.IPv4, HashSize: 64, MaxElem: 2}
	for name, prepare := range map[string]func(k *kernel){
		"found too small": func(k *kernel) { k.sets.Plant(small) },
		"refused an entry": func(k *kernel) {
			k.sets.Inject(ipsettest.Fault{Op: ipset.OpAdd, Set: small.Name, Nth: 3, Err: ipset.ErrFull})
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := newKernel()
			prepare(k)
			m := begin(t, k)
			for i := range 5 {
				m.Set(tenEndpoints(i, 0))
			}
			m.Apply(t.Context(), dataplane.ApplyOptions{Retry: true})
			apply(t, m)
			if n := strings.Count(k.sets.String(), "add KUBE-CLUSTER-IP"); n != 5 {
				t.Errorf("%d entries, want 5", n)
			}
			if name == "refused an entry" && !strings.Contains(k.sets.String(), "maxelem 131072") {
				t.Errorf("the set did not grow:\n%s", k.sets)
			}
		})
	}
}

// Every call of a first start, a change and a deletion fails once; the kernel
// must end up as if none had.
func TestEveryCallFailsOnce(t *testing.T) {
	steps := []model.ServicePlan{
		web, dual, service("web", "10.96.0.10", "10.244.1.3:8080"), gone("dual"),
		external("lb", "10.96.0.20", "203.0.113.1", model.KindLoadBalancer, local),
		external("np", "10.96.0.21", "192.168.0.1", model.KindNodePort, nil),
		external("lb", "10.96.0.20", "203.0.113.1", model.KindLoadBalancer, func(f *model.Frontend) {
			f.SourceRanges = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
		}),
		gone("np"),
	}
	play := func(t *testing.T, failAt int) (*kernel, int) {
		k := newKernel()
		k.failAt = failAt
		m := ipvs.New(zap.NewNop(), config(), k.deps())
		m.SetHost(host())
		for try := 0; m.Start(t.Context()) != nil || m.Load(t.Context()) != nil; try++ {
			if try > 3 {
				t.Fatal("cannot be loaded")
			}
		}
		for _, p := range steps {
			m.Set(p)
			for try := 0; m.Apply(t.Context(), dataplane.ApplyOptions{Retry: true}).Pending > 0; try++ {
				mustBeMarked(t, k)
				if try > 3 {
					t.Fatalf("still pending after call %d (%s) failed", failAt, k.calls[failAt-1])
				}
			}
		}
		return k, len(k.calls)
	}
	clean, calls := play(t, 0)
	for n := 1; n <= calls; n++ {
		k, _ := play(t, n)
		if diff := cmp.Diff(clean.String(), k.String()); diff != "" {
			t.Errorf("call %d (%s) failed (-clean +got):\n%s", n, k.calls[n-1], diff)
		}
	}
	t.Logf("%d calls failed once each", calls)
}

// The oracle: after any sequence of changes, restarts and failures the kernel is
// what a fresh mode makes of the last state.
func TestAnySequenceEndsLikeAFreshStart(t *testing.T) {
	seeds := uint64(100)
	if testing.Short() {
		seeds = 40
	}
	for seed := range seeds {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 1))
			k := newKernel()
			m := begin(t, k)
			state := map[string]model.ServicePlan{}
			for range 60 {
				p := randomPlan(rnd)
				state[p.ID.Name] = p
				m.Set(p)
				switch rnd.IntN(4) {
				case 0:
					k.failAt = len(k.calls) + 1 + rnd.IntN(6)
					m.Apply(t.Context(), dataplane.ApplyOptions{KeepOrphans: rnd.IntN(2) == 0, Retry: rnd.IntN(2) == 0})
					k.failAt = 0
				case 1:
					apply(t, m)
				case 2:
					plans := make([]model.ServicePlan, 0, len(state))
					for _, p := range state {
						plans = append(plans, p)
					}
					m = begin(t, k, plans...)
				}
			}
			apply(t, m)
			fresh := newKernel()
			f := begin(t, fresh)
			for _, p := range state {
				f.Set(p)
			}
			apply(t, f)
			if diff := cmp.Diff(fresh.String(), k.String()); diff != "" {
				t.Errorf("kernel (-fresh +got):\n%s", diff)
			}
		})
	}
}

// randomService is one of six Services on one of four addresses, so that they
// clash, with up to three backends, or is gone.
func randomService(rnd *rand.Rand) model.ServicePlan {
	name := fmt.Sprintf("svc-%d", rnd.IntN(6))
	if rnd.IntN(4) == 0 {
		return gone(name)
	}
	var backends []string
	for range rnd.IntN(4) {
		backends = append(backends, fmt.Sprintf("10.244.0.%d:8080", 1+rnd.IntN(5)))
	}
	slices.Sort(backends)
	return service(name, fmt.Sprintf("10.96.0.%d", 1+rnd.IntN(4)), slices.Compact(backends)...)
}

func TestClearTakesEverythingAway(t *testing.T) {
	k := newKernel()
	empty := newKernel().String()
	apply(t, begin(t, k, web, dual))
	m := begin(t, k)
	m.Clear()
	apply(t, m)
	if err := m.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(empty, k.String()); diff != "" {
		t.Errorf("kernel (-empty +got):\n%s", diff)
	}
}

// If any call of a cleanup fails, the next cleanup finds and removes the rest.
func TestClearFailsAtEachCall(t *testing.T) {
	empty := newKernel().String()
	for n := 1; n < 120; n++ {
		k := newKernel()
		apply(t, begin(t, k, web, dual, external("lb", "10.96.0.20", "203.0.113.1", model.KindLoadBalancer, local),
			external("np", "10.96.0.21", "192.168.0.1", model.KindNodePort, local)))
		m := begin(t, k)
		m.Clear()
		k.failAt = len(k.calls) + n
		m.Apply(t.Context(), dataplane.ApplyOptions{Retry: true})
		k.failAt = 0
		m = begin(t, k)
		m.Clear()
		for range 3 {
			m.Apply(t.Context(), dataplane.ApplyOptions{Retry: true})
		}
		if err := m.Remove(t.Context()); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(empty, k.String()); diff != "" {
			t.Errorf("call %d failed (-empty +got):\n%s", n, diff)
		}
	}
}

func TestClearForgetsWhatWasWanted(t *testing.T) {
	k := newKernel()
	m := begin(t, k, web, dual)
	apply(t, m)
	m.Clear()
	apply(t, m)
	if strings.Contains(k.String(), "KUBE-") || k.servers.String() != "" {
		t.Errorf("left:\n%s", k)
	}
}

func TestTextEqualsTheKernel(t *testing.T) {
	k := newKernel()
	m := begin(t, k, web, dual)
	apply(t, m)
	for kind, kernel := range map[string]fmt.Stringer{"servers": k.servers, "sets": k.sets, "rules": k.rules, "addresses": k.links} {
		var b bytes.Buffer
		if err := m.WriteRows(&b, kind); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(sortedLines(kernel.String()), sortedLines(b.String())); diff != "" {
			t.Errorf("%s (-kernel +plan):\n%s", kind, diff)
		}
	}
	chains, _, err := k.rules.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for key, c := range chains {
		for rule := range strings.Lines(c.Rules) {
			readsBack(t, key.Family, strings.TrimSuffix(rule, "\n"))
		}
	}
	if err := m.WriteRows(&bytes.Buffer{}, "pods"); err == nil || !strings.Contains(err.Error(), "servers, sets, rules, addresses") {
		t.Errorf("error %v", err)
	}
}

// sortedLines drops what is the kernel's own: comments and built-in chains.
func sortedLines(text string) []string {
	lines := slices.DeleteFunc(strings.Split(text, "\n"), func(l string) bool {
		return l == "" || l == "COMMIT" || strings.HasPrefix(l, "#") || strings.HasPrefix(l, "*") ||
			strings.HasPrefix(l, ":") && !strings.Contains(l, "KUBE-")
	})
	slices.Sort(lines)
	return lines
}

func BenchmarkOneEndpointOf(b *testing.B) {
	for _, n := range []int{100, 1_000, 10_000} {
		b.Run(fmt.Sprintf("services=%d", n), func(b *testing.B) {
			k := newKernel()
			m := ipvs.New(zap.NewNop(), config(), k.deps())
			for i := range n {
				m.Set(tenEndpoints(i, 0))
			}
			if err := m.Start(b.Context()); err != nil {
				b.Fatal(err)
			}
			if err := m.Load(b.Context()); err != nil {
				b.Fatal(err)
			}
			apply(b, m)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				m.Set(tenEndpoints(7, i%2))
				if r := m.Apply(b.Context(), dataplane.ApplyOptions{Retry: true}); i%2 == 1 && r.Total().Written() != 2 {
					b.Fatalf("wrote %+v", r)
				}
				k.calls = k.calls[:0]
			}
		})
	}
}

// tenEndpoints is Service i with ten endpoints, the last of which varies.
func tenEndpoints(i, variant int) model.ServicePlan {
	p := model.ServicePlan{ID: model.ServiceID{Namespace: "ns", Name: fmt.Sprint(i)}}
	f := model.Frontend{Key: model.FrontendKey{Addr: netip.AddrFrom4([4]byte{10, 96, byte(i >> 8), byte(i)}), Port: 80, Protocol: model.TCP}, Kind: model.KindClusterIP, Bind: true, Service: p.ID, Scheduler: rr}
	for e := range 10 {
		last := byte(e)
		if e == 9 {
			last += byte(variant)
		}
		f.Backends = append(f.Backends, model.Backend{Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), last}), 8080), Weight: 1})
	}
	p.Frontends = []model.Frontend{f}
	return p
}

// readsBack fails where the value of a rule does not have the text of the rule.
func readsBack(t *testing.T, f rules.Family, text string) {
	t.Helper()
	r := netfilter.ReadLine(text).Rule(f)
	if back := netfilter.NewLine(f, r); back.String() != text {
		t.Errorf("rule %q is read as %#v, which is written as %q", text, r, back)
	}
	for _, m := range r.Match {
		if _, unknown := m.(netfilter.Unknown); unknown {
			t.Errorf("rule %q has a condition without a type: %v", text, m)
		}
	}
}
