package ipvs_test

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap/zaptest"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/announce"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/migrate"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/link"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// balanced is web with a load-balancer address.
func balanced(change ...func(*model.Frontend)) model.ServicePlan {
	p := service("web", "10.96.0.10", "10.244.0.1:80")
	f := p.Frontends[0]
	f.Key.Addr, f.Kind, f.Hairpin = netip.MustParseAddr("203.0.113.10"), model.KindLoadBalancer, nil
	for _, c := range change {
		c(&f)
	}
	p.Frontends = append(p.Frontends, f)
	return p
}

// announcing begins a mode with table 100 on a node that serves.
func announcing(t *testing.T, k *kernel, table uint32, plans ...model.ServicePlan) *ipvs.Mode {
	t.Helper()
	c, deps := config(), k.deps()
	c.AnnounceTable, deps.Announced = table, k.links
	m := ipvs.New(zaptest.NewLogger(t), c, deps)
	m.SetHost(host())
	for _, p := range plans {
		m.Set(p)
	}
	if err := m.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := m.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	m.Announced().SetNode(announce.Node{Serves: true})
	return m
}

// announced are the routes in the kernel.
func (k *kernel) announced(t *testing.T, want ...string) {
	t.Helper()
	found, err := k.links.ListAnnounced(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for a := range found {
		got = append(got, a.String())
	}
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("announced (-want +got):\n%s", diff)
	}
}

const webRoute = "blackhole 203.0.113.10/32 table 100"

// An address is announced after all rows that serve it, and withdrawn before them.
func TestAnnouncedLastAndWithdrawnFirst(t *testing.T) {
	k := newKernel()
	m := announcing(t, k, 100, balanced())
	k.watch = func() {
		if found, _ := k.links.ListAnnounced(t.Context(), 0); len(found) > 0 {
			k.watch = nil
			k.calls = append(k.calls, "announced")
		}
	}
	apply(t, m)
	if slices.Contains(k.calls, "announced") {
		t.Errorf("announced before other rows: %v", k.calls)
	}
	k.announced(t, webRoute)
	k.watch = func() {
		if found, _ := k.links.ListAnnounced(t.Context(), 0); len(found) > 0 {
			k.calls = append(k.calls, "still announced")
		}
	}
	k.calls = nil
	m.Set(gone("web"))
	apply(t, m)
	if slices.Contains(k.calls, "still announced") || len(writes(k.calls)) == 0 {
		t.Errorf("other rows were deleted first: %v", k.calls)
	}
	k.announced(t)
}

// An address whose server cannot be written is not announced, and is as soon as it can.
func TestAnnouncedOnlyWhereItServes(t *testing.T) {
	for _, refuse := range []string{"write servers", "write destinations", "write addresses"} {
		t.Run(refuse, func(t *testing.T) {
			k := newKernel()
			k.refuse = refuse
			m := announcing(t, k, 100, balanced())
			m.Apply(t.Context(), dataplane.ApplyOptions{Retry: true})
			k.announced(t)
			if a := m.Announcement(netip.MustParseAddr("203.0.113.10")); a == nil || a.Announced || a.Table != 100 {
				t.Errorf("announcement %+v", a)
			}
			k.refuse = ""
			apply(t, m)
			k.announced(t, webRoute)
		})
	}
}

// An address with captured ports is announced when its packets come here.
func TestAnnouncedWhereCaptured(t *testing.T) {
	k := newKernel()
	apply(t, announcing(t, k, 100, balanced(func(f *model.Frontend) { f.Bind, f.Capture = false, true })))
	k.announced(t, webRoute)
}

// The rows show the route, and so does what is pending.
func TestAnnouncedRowsAreShown(t *testing.T) {
	k := newKernel()
	m := announcing(t, k, 100, balanced())
	const line = "ip route add " + webRoute + " proto 73"
	pending := m.Pending(10)
	if last := pending[len(pending)-1]; last.Table != "announced" || last.Rows[0].Text() != line {
		t.Errorf("pending %+v", last)
	}
	apply(t, m)
	key := balanced().Frontends[1].Key
	rows, err := m.RowsOf([]model.FrontendKey{key})
	if err != nil || !strings.Contains(rows.Desired["addresses"], line) || len(rows.Pending) > 0 {
		t.Errorf("rows of %s: %+v, %v", key, rows, err)
	}
	var desired, found strings.Builder
	if err := m.WriteRows(&desired, "addresses"); err != nil || !strings.Contains(desired.String(), line) {
		t.Errorf("desired addresses, %v:\n%s", err, desired.String())
	}
	if err := m.WriteFound(t.Context(), &found, "addresses"); err != nil || found.String() != desired.String() {
		t.Errorf("found addresses, %v:\n%s", err, found.String())
	}
}

// An audit finds a route that is gone.
func TestAnnouncedDriftIsFound(t *testing.T) {
	k := newKernel()
	m := announcing(t, k, 100, balanced())
	apply(t, m)
	k.links.LoseAnnouncement(link.Announcement{Table: 100, Addr: netip.MustParseAddr("203.0.113.10")})
	drift := dataplane.Drift{}
	for done := false; !done; {
		a, err := m.Audit(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		maps.Copy(drift, a.Drift)
		done = a.Done
	}
	if diff := cmp.Diff(dataplane.Drift{"announced": 1}, drift); diff != "" {
		t.Errorf("drift (-want +got):\n%s", diff)
	}
	apply(t, m)
	k.announced(t, webRoute)
}

// A cleanup deletes the routes for each target but iptables mode of this agent, which has the same.
func TestCleanupOfAnnounced(t *testing.T) {
	for target, want := range map[migrate.Target][]string{migrate.TargetNone: nil, migrate.TargetIPVS: nil, migrate.TargetOurs: {webRoute}} {
		k := newKernel()
		apply(t, announcing(t, k, 100, balanced()))
		theirs := link.Announcement{Table: 100, Addr: netip.MustParseAddr("203.0.113.99")}
		k.links.AnnounceByHand(theirs)
		m := ipvs.New(zaptest.NewLogger(t), config(), ipvs.Deps{Servers: servers{k}, Sets: sets{k}, Rules: ruleset{k}, Links: links{k}, Announced: k.links})
		if err := dataplane.Sweep(t.Context(), m.HandOver(target), func(dataplane.Result) {}); err != nil && target != migrate.TargetOurs {
			t.Error(err)
		}
		k.announced(t, want...)
		if errs := k.links.WriteAnnounced(t.Context(), []link.AnnounceChange{{Op: link.Add, Announcement: theirs}}); errs == nil {
			t.Error("the route of another program is gone")
		}
	}
}
