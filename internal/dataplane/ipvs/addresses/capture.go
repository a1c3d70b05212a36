package addresses

import (
	"net/netip"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/sets"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// An address of a Service that another machine needs is not bound: the node would lose its
// way there. Packets to the ports of the Service are captured instead, and only they:
//
//	mangle PREROUTING   to one of KUBE-CAPTURE: mark          KUBE-CAPTURE
//	routing             marked: local                         rows of the table "detached"
//	INPUT               as ever: filters, then IPVS
//
// A Service without endpoints refuses. IPVS would do so from the address itself, which the
// kernel does not for one that is not bound (icmp_route_lookup in net/ipv4/icmp.c). So its
// ports are not marked, and what is on its way there is refused:
//
//	filter FORWARD      new, to a frontend of the address: refuse   KUBE-CAPTURE
//
// Packets of the host itself need neither: IPVS handles them in OUTPUT, with any route. Errors
// about a connection (ICMP "fragmentation needed") come to the address and carry no port: those of
// connections that pass this node are captured, too. Everything else, ping included, goes where it
// went before.
//
// The virtual server is the same as with a bound address. So a connection continues when the
// address becomes bound, or is no longer bound.

// capture follows one frontend.
func (m *Manager) capture(c dataplane.Change) {
	was, is := c.Old != nil && c.Old.Capture, c.New != nil && c.New.Capture
	if !was && !is {
		return
	}
	f := model.FamilyOf(c.Key.Addr)
	before := m.capturing[f] > 0
	m.capturing[f] += count(is) - count(was)
	var marked map[netip.Addr]struct{}
	if is && sets.Captures(c.New) {
		marked = map[netip.Addr]struct{}{c.Key.Addr: {}}
	}
	for _, h := range m.captures.Set(c.Key, marked) {
		m.wantAddress(h.Key, m.claims.Holder(h.Key).Held)
	}
	if before != (m.capturing[f] > 0) {
		m.baseChanged()
	}
}

// Captured reports whether an address has captured ports and is not local in another way.
func (m *Manager) Captured(a netip.Addr) bool {
	return m.captures.Holder(a).Held && !m.claims.Holder(a).Held && !holds(m.binding.ranges, a)
}

func count(yes bool) int {
	if yes {
		return 1
	}
	return 0
}
