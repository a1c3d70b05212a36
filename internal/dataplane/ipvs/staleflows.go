package ipvs

import (
	"net/netip"
	"slices"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/addresses"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/chains"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/destinations"
	"github.com/kube-ipvs/kube-ipvs/internal/delta"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/conntrack"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// flows notes servers whose flows may be stale, and orders kernel/conntrack to look at them.
//
// IPVS tells connection tracking where it sent a flow (net.ipv4.vs.conntrack). A UDP flow that never
// ends keeps that entry and expects replies from a backend that is gone (internal/DECISIONS.md, UDP
// flows). So flows of UDP and SCTP are compared with the endpoints that may answer. That happens when a
// destination or a server is deleted, or a destination added. An answer that a destination sent before
// it was added is looked for, too: it would keep the client of a deleted flow out.
//
// The loop only orders that work, with the endpoints of that moment, after the kernel has the rows.
// A newer order replaces an older one. A first start orders it for every desired server, which
// repairs the flows after changes from a time without an agent. Flows of a server that an agent
// deleted right before it ended stay until they time out.
//
// For TCP, IPVS ends the entry of a connection itself (expire_nodest_conn), with one exception. A client
// that dialled before the frontend was in place has a flow that is not translated. Later attempts from
// the same port belong to that flow. Their source is not rewritten either, and a backend on another node
// answers past this node. Such flows are deleted when a server or its address was added.
type flows struct {
	kernel       Flows // nil looks at none
	frontends    *dataplane.Frontends
	chains       *chains.Manager
	servers      delta.View[vserver.ServerKey, vserver.Server]
	destinations *destinations.Manager
	addresses    *addresses.Manager
	// noted has the destinations that were added to each server.
	noted map[vserver.ServerKey][]netip.AddrPort
}

// subscribe notes servers, destinations and addresses as they are written.
func (f *flows) subscribe(servers *delta.Table[vserver.ServerKey, vserver.Server]) {
	servers.OnApplied(func(e delta.Applied[vserver.ServerKey, vserver.Server]) { f.onServer(e.Op, e.Key) })
	f.destinations.OnApplied(func(e delta.Applied[vserver.DestinationKey, vserver.Destination]) { f.onDestination(e.Op, e.Key) })
	f.addresses.Addresses.OnApplied(func(e delta.Applied[netip.Addr, struct{}]) { f.onAddress(e.Op, e.Key) })
	f.addresses.Detached.OnApplied(func(e delta.Applied[netip.Addr, bool]) { f.onAddress(e.Op, e.Key) })
	f.addresses.Routes.OnApplied(func(e delta.Applied[netip.Prefix, struct{}]) { f.onRange(e.Op, e.Key) })
}

// began notes a server to which packets may not have come until now.
func (f *flows) began(k vserver.ServerKey) {
	if _, noted := f.noted[k]; !noted {
		f.noted[k] = nil
	}
}

// stale notes a server whose flows may go to an endpoint that is gone.
func (f *flows) stale(k vserver.ServerKey) {
	if _, noted := f.noted[k]; !noted && k.Protocol != vserver.ProtocolTCP {
		f.noted[k] = nil
	}
}

// fresh notes a destination that was added.
func (f *flows) fresh(k vserver.DestinationKey) {
	if k.Server.Protocol != vserver.ProtocolTCP {
		f.noted[k.Server] = append(f.noted[k.Server], netip.AddrPortFrom(k.Addr, k.Port))
	}
}

// onServer follows a server that was written.
func (f *flows) onServer(op delta.Op, k vserver.ServerKey) {
	switch op {
	case delta.Delete:
		f.stale(k)
	case delta.Add:
		f.began(k)
	}
}

// onDestination follows a destination that was written.
func (f *flows) onDestination(op delta.Op, k vserver.DestinationKey) {
	switch op {
	case delta.Delete:
		f.stale(k.Server)
	case delta.Add:
		f.fresh(k)
	}
}

// onFound notes every server: it is unknown what changed before the kernel was read.
func (f *flows) onFound() {
	for k := range f.servers.AllDesired() {
		f.began(k)
	}
}

// onAddress notes the servers of an address whose packets did not come here before.
func (f *flows) onAddress(op delta.Op, a netip.Addr) {
	if op == delta.Delete {
		return
	}
	for _, claimants := range [][]model.FrontendKey{f.addresses.Claimants(a), f.addresses.CaptureClaimants(a)} {
		for _, k := range claimants {
			f.began(k)
		}
	}
}

// onRange notes them for all addresses of a range.
func (f *flows) onRange(op delta.Op, p netip.Prefix) {
	if op == delta.Delete {
		return
	}
	for k := range f.servers.Actual() {
		if p.Contains(k.Addr) {
			f.began(k)
		}
	}
}

// order hands over the servers that were noted. Destinations that stay because they may belong to
// an input that cannot be read keep answering.
func (f *flows) order(keepOrphans bool) {
	if len(f.noted) == 0 {
		return
	}
	if f.kernel != nil {
		var stay map[vserver.ServerKey][]vserver.DestinationKey
		if keepOrphans {
			stay = f.destinations.Left()
		}
		f.kernel.Order(f.orders(stay)...)
	}
	clear(f.noted)
}

// orders returns the orders for the noted servers, and for the frontends that are redirected to one
// of them, because a flow has the address that the client dialled.
func (f *flows) orders(stay map[vserver.ServerKey][]vserver.DestinationKey) []conntrack.Order {
	if f.detoursLead() {
		for _, from := range f.chains.DetoursTo(func(k model.FrontendKey) bool { _, noted := f.noted[k]; return noted }) {
			f.stale(from)
		}
	}
	out := make([]conntrack.Order, 0, len(f.noted))
	for k := range f.noted {
		if k.Protocol != vserver.ProtocolTCP {
			out = append(out, f.orderOf(k, stay[k]))
		} else if to, served := f.frontends.Get(k); served && to.Forward == model.ForwardNAT {
			// A backend that answers by itself never rewrites a flow, and no answer comes by here.
			out = append(out, conntrack.Order{Key: k, Untranslated: true})
		}
	}
	return out
}

// detoursLead reports whether any detour leads to a server that was noted.
func (f *flows) detoursLead() bool {
	for k := range f.noted {
		if f.chains.HasDetourTo(k) {
			return true
		}
	}
	return false
}

func (f *flows) orderOf(k vserver.ServerKey, stay []vserver.DestinationKey) conntrack.Order {
	o := conntrack.Order{Key: k}
	at, served := f.frontends.Get(k)
	if !served {
		o.Unserved = true
		return o
	}
	o.Keep = f.answering(at)
	if at.Detour.IsValid() {
		if to, ok := f.frontends.Get(model.FrontendKey{Addr: at.Detour.Addr(), Port: at.Detour.Port(), Protocol: at.Key.Protocol}); ok {
			o.Keep = append(o.Keep, f.answering(to)...)
		}
	}
	o.Fresh = f.noted[k]
	for _, dk := range stay {
		o.Keep = append(o.Keep, netip.AddrPortFrom(dk.Addr, dk.Port))
	}
	slices.SortFunc(o.Keep, netip.AddrPort.Compare)
	o.Keep = slices.Compact(o.Keep)
	return o
}

// answering lists the endpoints that may answer for a frontend: its backends, and destinations that
// drain there.
func (f *flows) answering(at model.Frontend) []netip.AddrPort {
	out := make([]netip.AddrPort, 0, len(at.Backends))
	for _, b := range at.Backends {
		out = append(out, b.Addr)
	}
	for _, k := range f.destinations.DrainingAt(at.Key) {
		out = append(out, netip.AddrPortFrom(k.Addr, k.Port))
	}
	return out
}
