package addresses

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"slices"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/delta"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/link"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// A service address has to be local to this machine, so that its packets come to INPUT,
// where IPVS waits. It is bound to kube-ipvs0, or one route makes its whole range local
// (internal/DECISIONS.md, Routes instead of addresses). The kernel walks all addresses of a
// device for each one that is added or deleted; a route is one message for any range.
//
// With a route all addresses of the range are local, those of no Service, too, and sockets of the
// host that listen on all addresses would answer there. So the route waits for the rules that
// refuse all but what a frontend has (accessRules), and they stay until it is gone. The marks in
// KUBE-IPVS-IPS, and so the ownership of servers, are the same with both bindings. A route cannot
// make an address wait for its server. As long as a server cannot be written, a port of a Service
// reaches the host's own socket. It also does so between the deletion of a server and of its
// entries. An address that is bound for other ports of a Service behaves the same.
//
// From one way to the other nothing is let go before the other is there: Hold of either
// table sees to it. Addresses that are given up for a route go in small groups.

// Binding is how service addresses become local to this machine (--vip-binding).
type Binding string

// The bindings.
const (
	BindAddress Binding = "address"
	BindRoute   Binding = "route"
)

// binding is how it is done at the moment.
type binding struct {
	// judged: ranges are right for this machine, as far as it is known.
	judged bool
	// ranges are routed now, or are to be; sorted.
	ranges []netip.Prefix
	// refused is why a range is not, for the log.
	refused map[netip.Prefix]string
	// guarded are those that the rules in force guard.
	guarded []netip.Prefix
	// pace limits how fast addresses are given up for a route.
	pacer dataplane.Pacer
}

// OnPass decides, before the rows of a pass are written, which ranges are local as a whole, and has the tables want it.
func (m *Manager) OnPass() {
	if m.cleared {
		return
	}
	b := &m.binding
	if b.judged {
		return
	}
	b.judged = true
	ranges := m.routable()
	if slices.Equal(ranges, b.ranges) {
		return
	}
	b.ranges = ranges
	m.log.Info("ranges of Services are made local by routes", zap.Stringers("ranges", ranges))
	for p := range maps.Collect(m.Routes.AllDesired()) {
		if !slices.Contains(ranges, p) {
			m.Routes.DeleteDesired(p)
		}
	}
	for _, p := range ranges {
		m.Routes.SetDesired(p, struct{}{})
	}
	for a := range m.claims.Keys() {
		m.wantAddress(a, true)
	}
	m.baseChanged()
}

// routable lists the ranges to route. A range that holds a foreign address is not
// routed: the local table is consulted before all others, and this machine would lose the way
// to that address. Its Services have addresses instead.
func (m *Manager) routable() []netip.Prefix {
	if m.options.Binding != BindRoute {
		return nil
	}
	var out []netip.Prefix
	refused := map[netip.Prefix]string{}
	for _, p := range m.options.ServiceCIDRs {
		if !slices.Contains(m.options.Families, model.FamilyOf(p.Addr())) {
			continue
		}
		if why := conflictIn(m.host, p); why != "" {
			refused[p] = why
			if m.binding.refused[p] != why {
				m.log.Warn("range is not routed, its Services have addresses", zap.Stringer("range", p), zap.String("holds", why))
			}
			continue
		}
		out = append(out, p)
	}
	m.binding.refused = refused
	slices.SortFunc(out, link.ComparePrefixes)
	return slices.Compact(out)
}

// conflictIn names a foreign address that lies in a range; "" is none.
func conflictIn(h model.Host, p netip.Prefix) string {
	for _, pods := range h.Node.PodCIDRs {
		if pods.Overlaps(p) {
			return fmt.Sprintf("pods of this node, %s", pods)
		}
	}
	var found []netip.Addr
	for _, list := range []func(func(netip.Addr) bool){maps.Keys(h.Links), maps.Keys(h.Nodes), slices.Values(h.Gateways)} {
		for a := range list {
			if p.Contains(a) {
				found = append(found, a)
			}
		}
	}
	if len(found) == 0 {
		return ""
	}
	least := slices.MinFunc(found, netip.Addr.Compare)
	return fmt.Sprintf("%s, %s", least, h.Holder(least))
}

// wantAddress wants an address bound, unless no frontend claims it or a route makes it local.
func (m *Manager) wantAddress(a netip.Addr, claimed bool) {
	bound := claimed && !holds(m.binding.ranges, a)
	if bound {
		m.Addresses.SetDesired(a, struct{}{})
	} else {
		m.Addresses.DeleteDesired(a)
	}
	m.wantDetached(a, bound)
}

// Keeps reports whether an address that is no longer to be bound must stay for now. It stays if a
// Service has it and its route is not there yet, or if other addresses come first.
func (m *Manager) Keeps(a netip.Addr) bool {
	if !holds(m.binding.ranges, a) || len(m.claims.Claimants(a)) == 0 {
		return false
	}
	for _, p := range m.binding.ranges {
		if _, there := m.Routes.Believed(p); there && p.Contains(a) {
			return !m.binding.pacer.Admit()
		}
	}
	return true
}

// LacksAddresses reports whether an address is not bound yet that a route makes local.
func (m *Manager) LacksAddresses(p netip.Prefix) bool {
	for a := range m.Addresses.AllUpdates() {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

// toGuard lists the ranges that are local as a whole, may be, or are to be.
func (m *Manager) toGuard() []netip.Prefix {
	out := slices.Collect(maps.Keys(maps.Collect(m.Routes.AllDesired())))
	out = slices.AppendSeq(out, m.Routes.AllDeletes())
	slices.SortFunc(out, link.ComparePrefixes)
	return out
}

// GuardsStale reports, after a pass, whether rules guard other ranges than those that are local now.
func (m *Manager) GuardsStale() bool {
	return !m.cleared && !slices.Equal(m.binding.guarded, m.toGuard())
}

// Guarded returns the ranges that rules are to guard from now on.
func (m *Manager) Guarded() []netip.Prefix {
	m.binding.guarded = m.toGuard()
	return m.binding.guarded
}

// loadRoutes reads our routes. A route that is found is guarded.
func (m *Manager) loadRoutes(ctx context.Context) (int, error) {
	drift, err := m.Routes.Load(ctx)
	if err == nil && !m.cleared {
		m.baseChanged()
	}
	return drift, err
}

// InspectRoutes reads our routes again. Where there should be none it does so in a full round only:
// the kernel lists all routes of this machine for it.
func (m *Manager) InspectRoutes(ctx context.Context, full bool) (int, error) {
	if c := m.Routes.Counts(); c.Desired+c.Deletes == 0 && !full {
		return 0, nil
	}
	return m.loadRoutes(ctx)
}

// BindRouted wants the addresses bound that a route makes local, of servers for which marked holds: a
// kube-proxy that comes after us knows no routes.
func (m *Manager) BindRouted(servers iter.Seq2[vserver.ServerKey, vserver.Server], marked func(netip.Addr) bool) {
	routed := slices.Collect(maps.Keys(maps.Collect(m.Routes.Actual())))
	for k := range servers {
		if holds(routed, k.Addr) && marked(k.Addr) {
			m.claims.Set(k, map[netip.Addr]struct{}{k.Addr: {}})
			m.Addresses.SetDesired(k.Addr, struct{}{})
		}
	}
}

// holds reports whether one of the ranges has the address.
func holds(ranges []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(ranges, func(p netip.Prefix) bool { return p.Contains(a) })
}

// Stage is the addresses' table, with a limit to how many a pass gives up for
// routes.
type Stage struct {
	*delta.Table[netip.Addr, struct{}]
	pacer *dataplane.Pacer
}

// ApplyDeletes unbinds addresses, and of those that a route makes local as many as one
// pass has time for.
func (s Stage) ApplyDeletes(ctx context.Context, p delta.Pass) delta.Outcome {
	return s.pacer.Run(ctx, p, s.Table.ApplyDeletes)
}
