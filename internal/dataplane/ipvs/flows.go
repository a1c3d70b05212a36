package ipvs

import (
	"net/netip"
	"slices"

	"github.com/kube-ipvs/kube-ipvs/internal/delta"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/conntrack"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// IPVS tells connection tracking where it sent a flow (net.ipv4.vs.conntrack). A UDP flow
// that never ends keeps that entry and expects replies from a backend that is gone
// (internal/DECISIONS.md, UDP flows). So when a destination or a server of a protocol
// without connections of TCP's kind is deleted, or a destination added, the flows to it
// are compared with who may answer by then; and what a destination sent before it was
// added, answers to flows that were deleted, is looked for, as it would keep those clients
// out. That is work for somebody else than the loop: here it is only ordered, with what
// holds at that moment, after the kernel has it; a newer order takes the place of an older
// one, so that nobody is judged by what held before. A first start orders it for every
// server that is wanted, and so mends what changed while no agent ran; only the flows of a
// server that an agent deleted right before it ended stay until they time out.
//
// TCP keeps to IPVS, which ends the entry of a connection itself (expire_nodest_conn), with
// one exception: a client that dialled before the frontend was there has a flow that nobody
// rewrote. Later attempts from the same port belong to it, so that their source is not
// rewritten either and a backend elsewhere answers past this node. Such flows go when a server
// or its address has been added.

// flows are the servers whose flows have to be looked at, with the destinations that were
// added.
type flows map[vserver.ServerKey][]netip.AddrPort

// began notes a server that packets may have missed until now.
func (f flows) began(k vserver.ServerKey) {
	if _, noted := f[k]; !noted {
		f[k] = nil
	}
}

// stale notes a server whose flows may go to where nobody is.
func (f flows) stale(k vserver.ServerKey) {
	if _, noted := f[k]; !noted && k.Protocol != vserver.ProtocolTCP {
		f[k] = nil
	}
}

// fresh notes a destination that was added.
func (f flows) fresh(k vserver.DestinationKey) {
	if k.Server.Protocol != vserver.ProtocolTCP {
		f[k.Server] = append(f[k.Server], netip.AddrPortFrom(k.Addr, k.Port))
	}
}

// onServer follows a server that was written.
func (f flows) onServer(op delta.Op, k vserver.ServerKey) {
	switch op {
	case delta.Delete:
		f.stale(k)
	case delta.Add:
		f.began(k)
	}
}

// onDestination follows a destination that was written.
func (f flows) onDestination(op delta.Op, k vserver.DestinationKey) {
	switch op {
	case delta.Delete:
		f.stale(k.Server)
	case delta.Add:
		f.fresh(k)
	}
}

// staleFound notes every server: nobody knows what changed before the kernel was read.
func (m *Mode) staleFound() {
	for k := range m.servers.AllDesired() {
		m.flows.began(k)
	}
}

// addressAdded notes the servers of an address whose packets did not come here before.
func (m *Mode) addressAdded(op delta.Op, a netip.Addr) {
	if op == delta.Delete {
		return
	}
	for _, claimants := range [][]model.FrontendKey{m.addresses.Claimants(a), m.addresses.CaptureClaimants(a)} {
		for _, k := range claimants {
			m.flows.began(k)
		}
	}
}

// rangeAdded is addressAdded for all addresses of a range.
func (m *Mode) rangeAdded(op delta.Op, p netip.Prefix) {
	if op == delta.Delete {
		return
	}
	for k := range m.servers.Actual() {
		if p.Contains(k.Addr) {
			m.flows.began(k)
		}
	}
}

// orderFlows hands over what was noted. Destinations that stay because they may belong to
// an input that cannot be read go on answering.
func (m *Mode) orderFlows(keepOrphans bool) {
	if len(m.flows) == 0 {
		return
	}
	if m.deps.Flows != nil {
		var stay map[vserver.ServerKey][]vserver.DestinationKey
		if keepOrphans {
			stay = m.destinations.Left()
		}
		m.deps.Flows.Order(m.orders(stay)...)
	}
	clear(m.flows)
}

// orders are those of the servers noted, and of the frontends whose clients take a detour
// to one of them: what they dial is in the flow, not where they were taken.
func (m *Mode) orders(stay map[vserver.ServerKey][]vserver.DestinationKey) []conntrack.Order {
	if m.detoursLead() {
		for from, d := range m.detours.from {
			if _, noted := m.flows[target(from, d)]; noted {
				m.flows.stale(from)
			}
		}
	}
	out := make([]conntrack.Order, 0, len(m.flows))
	for k := range m.flows {
		if k.Protocol != vserver.ProtocolTCP {
			out = append(out, m.orderOf(k, stay[k]))
		} else if f, served := m.frontends.Get(k); served && f.Forward == model.ForwardNAT {
			// A backend that answers by itself never rewrites a flow, and no answer comes by here.
			out = append(out, conntrack.Order{Key: k, Untranslated: true})
		}
	}
	return out
}

// detoursLead tells whether any detour leads to a server that was noted.
func (m *Mode) detoursLead() bool {
	for k := range m.flows {
		if m.detours.targets[k] > 0 {
			return true
		}
	}
	return false
}

func (m *Mode) orderOf(k vserver.ServerKey, stay []vserver.DestinationKey) conntrack.Order {
	o := conntrack.Order{Key: k}
	f, served := m.frontends.Get(k)
	if !served {
		o.Unserved = true
		return o
	}
	o.Keep = m.answering(f)
	if f.Detour.IsValid() {
		if to, ok := m.frontends.Get(model.FrontendKey{Addr: f.Detour.Addr(), Port: f.Detour.Port(), Protocol: f.Key.Protocol}); ok {
			o.Keep = append(o.Keep, m.answering(to)...)
		}
	}
	o.Fresh = m.flows[k]
	for _, dk := range stay {
		o.Keep = append(o.Keep, netip.AddrPortFrom(dk.Addr, dk.Port))
	}
	slices.SortFunc(o.Keep, netip.AddrPort.Compare)
	o.Keep = slices.Compact(o.Keep)
	return o
}

// answering lists who may answer for a frontend: its backends and what drains there.
func (m *Mode) answering(f model.Frontend) []netip.AddrPort {
	out := make([]netip.AddrPort, 0, len(f.Backends))
	for _, b := range f.Backends {
		out = append(out, b.Addr)
	}
	for _, k := range m.destinations.DrainingAt(f.Key) {
		out = append(out, netip.AddrPortFrom(k.Addr, k.Port))
	}
	return out
}
