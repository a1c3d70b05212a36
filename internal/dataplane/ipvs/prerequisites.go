package ipvs

import (
	"net/netip"
	"slices"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/addresses"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/chains"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/destinations"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/migrate"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/ownership"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/sets"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/netfilter"
	"github.com/kube-ipvs/kube-ipvs/internal/delta"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/netkey"
	"github.com/kube-ipvs/kube-ipvs/ipset"
)

// order knows the tables of the mode and defines what rows of one wait for in others. It changes none of
// them. A row of a table waits (W) or is held (H) for:
//
//	members       H  what the entry guards or marks is still to be deleted
//	servers       W  sets, chains and jumps of the family, and the guards of the server
//	destinations  W  the server;  H  nothing, but they go with their server
//	routes        W  sets, chains and jumps
//	addresses     W  sets, chains and jumps, the mark of the address and a server at it
//	              H  an address without its mark: servers at it that are still to be deleted
//	detached      W  the address and its entry, or a captured port with its server
//	announced     W  a local address, a server at it and one of its destinations
//
// Chains, jumps and nftables tables wait for a takeover (migrate/takeover.go).
type order struct {
	config       *Config
	host         *model.Host
	frontends    *dataplane.Frontends
	sets         *sets.Manager
	chains       *chains.Manager
	servers      delta.View[vserver.ServerKey, vserver.Server]
	addresses    *addresses.Manager
	takeover     *migrate.Takeover
	destinations *destinations.Manager
	// leftovers caches left during one pass; nil is not computed.
	leftovers *leftovers
}

// baseInPlace reports whether the sets, chains and jumps of the family of an address are in place.
// Nothing new attracts traffic before that; rows in place may change. Chains with a match that a
// kernel may lack are not waited for.
func (o *order) baseInPlace(a netip.Addr) bool {
	f := model.FamilyOf(a)
	for name := range o.sets.Sets.AllUpdates() {
		if o.sets.Family(name) == f {
			return false
		}
	}
	for k := range o.chains.Chains.AllUpdates() {
		if k.Family == f && !chains.Optional(k) && !o.takeover.Spares(k) {
			return false
		}
	}
	for k := range o.chains.Jumps.AllUpdates() {
		if k.Family == f && !chains.Optional(netfilter.TargetOf(k)) {
			return false
		}
	}
	return true
}

// marks reports whether the entry is in place that marks an address as ours. Before it is, nothing is
// put at the address: a process that died then would leave rows that no later process knows, and the
// address would answer on every port.
func (o *order) marks(a netip.Addr) bool {
	_, ok := o.sets.Members.Believed(sets.Marker(a))
	return ok
}

// marked reports whether packets to an address are marked, and it may be detached.
func (o *order) marked(a netip.Addr) bool {
	if o.addresses.Captured(a) {
		return o.mayCapture(a)
	}
	_, bound := o.addresses.Addresses.Believed(a)
	_, named := o.sets.Members.Believed(sets.DirectIP(a))
	return bound && named && o.baseInPlace(a)
}

// mayCapture reports whether packets to an address may become local: a port is marked, and
// a virtual server is in place to take them.
func (o *order) mayCapture(a netip.Addr) bool {
	for _, k := range o.addresses.CaptureClaimants(a) {
		if _, served := o.servers.Believed(k); served && o.sets.Has(sets.CaptureEntry(k)) {
			return o.baseInPlace(a)
		}
	}
	return false
}

// guarded reports whether the entries are in place that a server must not be without.
func (o *order) guarded(k vserver.ServerKey) bool {
	f, ok := o.frontends.Get(k)
	if !ok {
		return false
	}
	for _, e := range sets.Guards(&f) {
		if _, there := o.sets.Members.Believed(e); !there {
			return false
		}
	}
	return true
}

// hasServer reports whether a virtual server is in place.
func (o *order) hasServer(k vserver.ServerKey) bool {
	_, there := o.servers.Believed(k)
	return there
}

// served reports whether a virtual server is in place at an address: without any the host itself
// would get its packets.
func (o *order) served(a netip.Addr) bool {
	for _, k := range o.addresses.Claimants(a) {
		if _, ok := o.servers.Believed(k); ok {
			return true
		}
	}
	return false
}

// answers reports whether the rows are in place by which a frontend takes connections from outside.
func (o *order) answers(k model.FrontendKey) bool {
	f, ok := o.frontends.Get(k)
	return ok && o.hasServer(k) && o.addresses.Local(k.Addr) && slices.ContainsFunc(f.Backends, func(b model.Backend) bool {
		_, there := o.destinations.Believed(destinations.Key(k, b.Addr))
		return there
	})
}

// leftovers are where virtual servers are still to be deleted.
type leftovers struct {
	addrs map[netip.Addr]struct{}
	ports map[port]struct{}
	// nodes are the addresses of NodePorts in place; nil before the first question.
	nodes map[netip.Addr]struct{}
}

// port is a port of any address.
type port struct {
	protocol netkey.Protocol
	number   uint16
}

// left computes the leftovers once in a pass.
func (o *order) left() *leftovers {
	if o.leftovers == nil {
		o.leftovers = &leftovers{addrs: map[netip.Addr]struct{}{}, ports: map[port]struct{}{}}
		for k := range o.servers.AllDeletes() {
			o.leftovers.addrs[k.Addr] = struct{}{}
			o.leftovers.ports[port{k.Protocol, k.Port}] = struct{}{}
		}
	}
	return o.leftovers
}

// serverLeftAt reports whether a virtual server at an address is still to be deleted. Where the
// address is not marked it alone shows that such a server is ours, so it is deleted after it.
func (o *order) serverLeftAt(a netip.Addr) bool {
	_, left := o.left().addrs[a]
	return left
}

// nodePortAt reports whether a virtual server of a NodePort is in place at an address. When
// the node has lost the address, but a Service was not compiled for it yet, its servers there are still
// wanted. They go with the next pass and are known until then. All servers are walked
// for it, once in a pass in which the node has lost an address.
func (o *order) nodePortAt(a netip.Addr) bool {
	l := o.left()
	if l.nodes == nil {
		l.nodes = map[netip.Addr]struct{}{}
		for k := range o.servers.Actual() {
			if f, wanted := o.frontends.Get(k); wanted && f.Kind == model.KindNodePort {
				l.nodes[k.Addr] = struct{}{}
			}
		}
	}
	_, there := l.nodes[a]
	return there
}

// serverLeftOn reports whether a virtual server on a port is still to be deleted.
func (o *order) serverLeftOn(p model.Protocol, number uint16) bool {
	_, left := o.left().ports[port{p, number}]
	return left
}

// needed reports whether an entry has to stay because something that it guards or marks is still to be
// deleted.
func (o *order) needed(k sets.Key) bool {
	switch o.sets.Purpose(k.Set) {
	case sets.IPVSIPs:
		return o.addresses.Addresses.PendingDelete(k.Entry.Addr) || o.serverLeftAt(k.Entry.Addr)
	case sets.DirectIPs:
		return o.addresses.Detached.PendingDelete(k.Entry.Addr)
	case sets.NodePortIPs:
		return o.serverLeftAt(k.Entry.Addr) || o.nodePortAt(k.Entry.Addr)
	case sets.NodePortTCP:
		return o.nodePortNeeded(model.TCP, k.Entry.Port)
	case sets.NodePortUDP:
		return o.nodePortNeeded(model.UDP, k.Entry.Port)
	case sets.CaptureIPs:
		return false
	case sets.LoopBack, sets.Detour, sets.HealthCheck, sets.NodePortLocalTCP, sets.NodePortLocalUDP:
		return false
	}
	server := vserver.ServerKey{Addr: k.Entry.Addr, Port: k.Entry.Port, Protocol: netkey.Protocol(k.Entry.Protocol)}
	return o.servers.PendingDelete(server) || ownership.Names(o.sets.Purpose(k.Set)) && o.unnamed(server)
}

// nodePortNeeded reports it for the entry of a NodePort.
func (o *order) nodePortNeeded(p model.Protocol, number uint16) bool {
	return o.serverLeftOn(p, number) || slices.ContainsFunc(o.host.NodePorts, func(a netip.Addr) bool {
		return o.unnamed(vserver.ServerKey{Addr: a, Port: number, Protocol: p})
	})
}

// unnamed reports whether no entry that stays names a server in place as ours. The entry that is to name
// it from now on, in another set, could not be added yet.
func (o *order) unnamed(server vserver.ServerKey) bool {
	if !o.servers.Known(server) {
		return false
	}
	f := o.facts()
	f.Bound = func(netip.Addr) bool { return false } // its address may go with this pass
	f.Has = func(set string, e ipset.Entry) bool {
		k := sets.Key{Set: set, Entry: e}
		_, there := o.sets.Members.Believed(k)
		_, stays := o.sets.Members.Desired(k)
		return there && stays
	}
	return !f.Owns(server)
}

// facts are the inputs of ownership: rows that are desired, known to be in the kernel, or possibly
// there.
func (o *order) facts() ownership.Facts {
	return ownership.Facts{
		Excluded: o.config.ExcludeCIDRs,
		Bound:    o.addresses.Addresses.Known,
		OnLink: func(a netip.Addr) bool {
			_, there := o.host.Links[a]
			return there
		},
		HasSet: func(set string) bool {
			_, there := o.sets.Sets.Believed(set)
			return there
		},
		Has: func(set string, e ipset.Entry) bool { return o.sets.Members.Known(sets.Key{Set: set, Entry: e}) },
	}
}

// owns decides whether a virtual server is ours.
func (o *order) owns(k vserver.ServerKey) bool {
	f := o.facts()
	return f.Owns(k)
}
