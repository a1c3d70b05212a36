package ipvs

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/sets"
	"github.com/kube-ipvs/kube-ipvs/internal/delta"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/link"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// A service address has to be local to this machine, so that its packets come to INPUT,
// where IPVS waits. It is bound to kube-ipvs0, or one route makes its whole range local
// (internal/DECISIONS.md, Routes instead of addresses). The kernel walks all addresses of a
// device for each one that is added or deleted; a route is one message for any range.
//
// With a route all addresses of the range are local, those of no Service, too, and sockets
// of the host that listen on all addresses would answer there. So the route waits for the
// rules that refuse all but what a frontend has (accessRules), and they stay until it is
// gone. The marks in KUBE-IPVS-IPS are the same for either way, and so is who owns a
// server. What a route cannot say is that an address without a server is not local yet: as
// long as a server cannot be written, or between the deletion of a server and of its
// entries, a port of a Service is the host's own port, as it is on an address that is
// bound for the other ports of a Service.
//
// From one way to the other nothing is let go before the other is there: Hold of either
// table sees to it. Addresses that are given up for a route go in small groups.

// Binding says how service addresses become local to this machine (--vip-binding).
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
	// refused says why a range is not, for the log.
	refused map[netip.Prefix]string
	// guarded are those that the rules in force guard.
	guarded []netip.Prefix
	// pace is that of addresses that are given up for a route.
	pacer dataplane.Pacer
}

// bind decides which ranges are local as a whole, and has the tables want it.
func (m *Mode) bind() {
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
	m.log.Info("service ranges are made local by routes", zap.Stringers("ranges", ranges))
	for p := range maps.Collect(m.routes.AllDesired()) {
		if !slices.Contains(ranges, p) {
			m.routes.DeleteDesired(p)
		}
	}
	for _, p := range ranges {
		m.routes.SetDesired(p, struct{}{})
	}
	for a := range m.addressClaims.Keys() {
		m.wantAddress(a, true)
	}
	m.wantBase()
}

// routable lists the ranges to route. One that holds what somebody else has is none of
// them: the local table is asked before all others, and this machine would lose the way
// there. Its Services have addresses instead.
func (m *Mode) routable() []netip.Prefix {
	if m.config.Binding != BindRoute {
		return nil
	}
	var out []netip.Prefix
	refused := map[netip.Prefix]string{}
	for _, p := range m.config.ServiceCIDRs {
		if !slices.Contains(m.config.Families, model.FamilyOf(p.Addr())) {
			continue
		}
		if why := occupant(m.host, p); why != "" {
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

// occupant names what of somebody else's lies in a range; "" is nothing.
func occupant(h model.Host, p netip.Prefix) string {
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

// wantAddress has the address bound, unless nobody claims it or a route makes it local.
func (m *Mode) wantAddress(a netip.Addr, claimed bool) {
	bound := claimed && !holds(m.binding.ranges, a)
	if bound {
		m.addresses.SetDesired(a, struct{}{})
	} else {
		m.addresses.DeleteDesired(a)
	}
	m.wantDetached(a, bound)
}

// keeps tells whether an address that is not to be bound has to stay for now: it is of a
// Service, and its route is not there, or others come first.
func (m *Mode) keeps(a netip.Addr) bool {
	if !holds(m.binding.ranges, a) || len(m.addressClaims.Claimants(a)) == 0 {
		return false
	}
	for _, p := range m.binding.ranges {
		if _, there := m.routes.Believed(p); there && p.Contains(a) {
			return !m.binding.pacer.Admit()
		}
	}
	return true
}

// lacksAddresses tells whether an address is not bound yet that a route makes local.
func (m *Mode) lacksAddresses(p netip.Prefix) bool {
	for a := range m.addresses.AllUpdates() {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

// toGuard lists the ranges that are local as a whole, may be, or are to be.
func (m *Mode) toGuard() []netip.Prefix {
	out := slices.Collect(maps.Keys(maps.Collect(m.routes.AllDesired())))
	out = slices.AppendSeq(out, m.routes.AllDeletes())
	slices.SortFunc(out, link.ComparePrefixes)
	return out
}

// overGuarded tells, after a pass, whether rules guard a range that is not local any
// more, and has them changed.
func (m *Mode) overGuarded() bool {
	if m.cleared || slices.Equal(m.binding.guarded, m.toGuard()) {
		return false
	}
	m.wantBase()
	return true
}

// loadRoutes reads our routes. What is found is guarded.
func (m *Mode) loadRoutes(ctx context.Context) (int, error) {
	drift, err := m.routes.Load(ctx)
	if err == nil && !m.cleared {
		m.wantBase()
	}
	return drift, err
}

// inspectRoutes reads them again, where there should be none every seldom-th round: the
// kernel lists all routes of this machine for it.
func (m *Mode) inspectRoutes(ctx context.Context) (int, error) {
	if c := m.routes.Counts(); c.Desired+c.Deletes == 0 && m.rounds%seldom != 0 {
		return 0, nil
	}
	return m.loadRoutes(ctx)
}

// bindRouted wants the addresses bound that a route makes local: a kube-proxy that comes
// after us knows no routes, and what carries has to go on until it has bound them itself.
func (h handOver) bindRouted() {
	routed := slices.Collect(maps.Keys(maps.Collect(h.routes.Actual())))
	for k := range h.servers.Actual() {
		if holds(routed, k.Addr) && h.sets.Members.Known(sets.Marker(k.Addr)) {
			h.addressClaims.Set(k, map[netip.Addr]struct{}{k.Addr: {}})
			h.addresses.SetDesired(k.Addr, struct{}{})
		}
	}
}

// holds tells whether one of the ranges has the address.
func holds(ranges []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(ranges, func(p netip.Prefix) bool { return p.Contains(a) })
}

// ofFamily picks the ranges of a family.
func ofFamily(f model.Family, ranges []netip.Prefix) []netip.Prefix {
	return slices.DeleteFunc(slices.Clone(ranges), func(p netip.Prefix) bool { return model.FamilyOf(p.Addr()) != f })
}

// addressStage is the addresses' table, with a limit to how many a pass gives up for
// routes.
type addressStage struct {
	*delta.Table[netip.Addr, struct{}]
	mode *Mode
}

// ApplyDeletes unbinds addresses, and of those that a route makes local as many as one
// pass has time for.
func (s addressStage) ApplyDeletes(ctx context.Context, p delta.Pass) delta.Outcome {
	return s.mode.binding.pacer.Run(ctx, p, s.Table.ApplyDeletes)
}

// routeStore reads and writes local routes.
type routeStore struct {
	mode  *Mode
	links Links
}

// List returns those that are ours.
func (s routeStore) List(ctx context.Context) (map[netip.Prefix]struct{}, error) {
	return s.links.ListRoutes(ctx)
}

// Write hands all changes over in one batch.
func (s routeStore) Write(ctx context.Context, changes []delta.Change[netip.Prefix, struct{}]) []error {
	batch := make([]link.RouteChange, len(changes))
	for i, c := range changes {
		batch[i] = link.RouteChange{Op: link.Add, Prefix: c.Key}
		if c.Op == delta.Delete {
			batch[i].Op = link.Delete
		}
	}
	errs := s.links.WriteRoutes(ctx, batch)
	for i, c := range changes {
		if c.Op != delta.Delete && delta.ErrorOf(errs, i) == nil {
			s.mode.rangeAdded(c.Key)
		}
	}
	return errs
}
