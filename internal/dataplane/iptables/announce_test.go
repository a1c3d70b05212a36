package iptables_test

import (
	"net/netip"
	"strings"
	"testing"

	"go.uber.org/zap/zaptest"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/announce"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/iptables"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/link"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/link/linktest"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// An address is announced when the rules of its Service are in place, and withdrawn with them. An audit finds
// a route that is gone.
func TestAnnounced(t *testing.T) {
	k, links := newKernel(), linktest.New()
	deps, c := k.deps(), config()
	c.AnnounceTable, deps.Announced = 100, links
	m := iptables.New(zaptest.NewLogger(t), c, deps)
	p := service("web", "10.96.0.10", "10.244.0.1")
	f := p.Frontends[0]
	f.Key.Addr, f.Kind = netip.MustParseAddr("203.0.113.10"), model.KindLoadBalancer
	p.Frontends = append(p.Frontends, f)
	m.Set(p)
	if err := m.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	m.Announced().SetNode(announce.Node{Serves: true})
	const line = "ip route add blackhole 203.0.113.10/32 table 100 proto 73\n"
	var b strings.Builder
	if err := m.WriteRows(&b, "addresses"); err != nil || b.String() != line {
		t.Errorf("addresses %q, %v", b.String(), err)
	}
	pending := m.Pending(10)
	if last := pending[len(pending)-1]; last.Table != "announced" {
		t.Errorf("pending %+v", last)
	}

	k.failAt = len(k.calls) + 1
	m.Apply(t.Context(), dataplane.ApplyOptions{Retry: true})
	if links.String() != "" {
		t.Errorf("announced without rules: %s", links)
	}
	for range 2 {
		m.Apply(t.Context(), dataplane.ApplyOptions{Retry: true})
	}
	if links.String() != line {
		t.Errorf("routes %q", links)
	}
	var found strings.Builder
	if err := m.WriteFound(t.Context(), &found, "addresses"); err != nil || found.String() != line {
		t.Errorf("found addresses %q, %v", found.String(), err)
	}
	if a := m.Announcement(f.Key.Addr); a == nil || !a.Announced {
		t.Errorf("announcement %+v", a)
	}

	links.LoseAnnouncement(link.Announcement{Table: 100, Addr: f.Key.Addr})
	drift := 0
	for done := false; !done; {
		a, err := m.Audit(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		drift, done = drift+a.Drift["announced"], a.Done
	}
	if apply(t, m); drift != 1 || links.String() != line {
		t.Errorf("drift %d, routes %q", drift, links)
	}
	m.Clear()
	m.Apply(t.Context(), dataplane.ApplyOptions{Retry: true})
	if links.String() != "" {
		t.Errorf("routes after Clear: %q", links)
	}
}
