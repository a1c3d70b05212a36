package ipvs

import (
	"net/netip"
	"slices"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/addresses"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/destinations"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/ownership"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/servers"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/sets"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/netfilter"
	"github.com/kube-ipvs/kube-ipvs/internal/delta"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nftables"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/netkey"
	"github.com/kube-ipvs/kube-ipvs/ipset"
)

// makeTables joins each table to its store and says who owns its rows and what
// they wait for.
func (m *Mode) makeTables() {
	m.sets = sets.New(sets.Options{
		Log: m.log, Kernel: m.deps.Sets, Families: m.config.Families, HoldMember: m.needed, Release: m.releaseSet,
	})
	m.chains = delta.NewTable(netfilter.ChainStore{Rules: m.deps.Rules}, delta.Options[netfilter.ChainKey, netfilter.Chain]{
		Name: "chains", Compare: netfilter.ChainKey.Compare, Equal: same[netfilter.Chain], Owned: m.ownedChain,
		Batch: allChains,
		Wait:  m.spared,
		Hold:  func(k netfilter.ChainKey, _ bool) bool { return m.spared(k) || m.referred(k) },
	})
	m.jumps = delta.NewTable(netfilter.JumpStore{Rules: m.deps.Rules, Jumps: jumps}, delta.Options[netfilter.JumpKey, netfilter.Jump]{
		Name: "jumps", Compare: jumps.Compare, Equal: same[netfilter.Jump],
	})
	m.servers = servers.New(servers.Options{
		Log: m.log, Kernel: m.deps.Servers, Frontends: m.frontends, Hold: m.sets, Owned: m.ownedServer,
		Wait:    func(k vserver.ServerKey) bool { return !m.baseInPlace(k.Addr) || !m.guarded(k) },
		Deleted: m.serversDeleted,
	})
	m.destinations = destinations.New(destinations.Options{
		Log: m.log, Kernel: m.deps.Servers, Frontends: m.frontends, Servers: m.servers, Node: m.config.Node,
		Wait:       func(k vserver.DestinationKey) bool { _, there := m.servers.Believed(k.Server); return !there },
		Hold:       func(k vserver.DestinationKey, orphans bool) bool { return m.servers.Deleting(k.Server, orphans) },
		ServerLost: m.serverLost,
	})
	m.servers.OnApplied(func(e delta.Applied[vserver.ServerKey, vserver.Server]) { m.flows.onServer(e.Op, e.Key) })
	m.destinations.OnApplied(func(e delta.Applied[vserver.DestinationKey, vserver.Destination]) { m.flows.onDestination(e.Op, e.Key) })
	m.addresses = addresses.New(addresses.Options{
		Log: m.log, Kernel: m.deps.Links, Entries: m.sets, Families: m.config.Families,
		Binding: m.config.Binding, ServiceCIDRs: m.config.ServiceCIDRs, BaseChanged: m.wantBase,
		Order: addresses.Order{
			WaitRoute:    func(p netip.Prefix) bool { return !m.baseInPlace(p.Addr()) },
			WaitAddress:  func(a netip.Addr) bool { return !m.baseInPlace(a) || !m.marks(a) || !m.served(a) },
			HoldAddress:  func(a netip.Addr) bool { return !m.marks(a) && m.serverLeftAt(a) },
			WaitDetached: func(a netip.Addr) bool { return !m.marked(a) },
		},
	})
	m.addresses.Addresses.OnApplied(func(e delta.Applied[netip.Addr, struct{}]) { m.addressAdded(e.Op, e.Key) })
	m.addresses.Detached.OnApplied(func(e delta.Applied[netip.Addr, bool]) { m.addressAdded(e.Op, e.Key) })
	m.addresses.Routes.OnApplied(func(e delta.Applied[netip.Prefix, struct{}]) { m.rangeAdded(e.Op, e.Key) })
	m.tables = delta.NewTable(netfilter.ProxyTableStore{Tables: m.deps.Tables}, delta.Options[nftables.Key, struct{}]{
		Name: "nftables", Compare: netfilter.CompareTables, Equal: alike, Owned: m.ownedTable,
		Hold: func(nftables.Key, bool) bool { return m.takeover.holding },
	})
}

// serversDeleted follows servers that were deleted: their destinations went with them.
func (m *Mode) serversDeleted() {
	m.leftovers = nil
	m.destinations.OnServersDeleted()
}

// allChains has chains written at once, however many there are: those that are deleted
// refer to each other, and the room empties all of a call before it removes the first.
const allChains = 1 << 20

// baseInPlace tells whether the sets, chains and jumps of an address's family
// are. Nothing new attracts traffic before that; what is there goes on changing. Chains
// with a match that a kernel may lack are not waited for.
func (m *Mode) baseInPlace(a netip.Addr) bool {
	f := model.FamilyOf(a)
	for name := range m.sets.Sets.AllUpdates() {
		if m.sets.Family(name) == f {
			return false
		}
	}
	for k := range m.chains.AllUpdates() {
		if k.Family == rules.Family(f) && !isDetourChain(k) && k.Name != chainDirectMSS && !m.spared(k) {
			return false
		}
	}
	for k := range m.jumps.AllUpdates() {
		if k.Family == rules.Family(f) && k.Target != chainDirectMSS {
			return false
		}
	}
	return true
}

// marks tells whether the entry is in place that tells that an address is ours.
// Before it is, nothing is put at the address: a process that died then would
// leave behind what nobody knows, and the address would answer on every port.
func (m *Mode) marks(a netip.Addr) bool {
	_, ok := m.sets.Members.Believed(sets.Marker(a))
	return ok
}

// marked reports whether packets to an address are marked, and it may be detached.
func (m *Mode) marked(a netip.Addr) bool {
	if m.addresses.Captured(a) {
		return m.mayCapture(a)
	}
	_, bound := m.addresses.Addresses.Believed(a)
	_, named := m.sets.Members.Believed(sets.DirectIP(a))
	return bound && named && m.baseInPlace(a)
}

// mayCapture reports whether packets to an address may become local: a port is marked, and
// a virtual server is in place to take them.
func (m *Mode) mayCapture(a netip.Addr) bool {
	for _, k := range m.addresses.CaptureClaimants(a) {
		if _, served := m.servers.Believed(k); served && m.sets.Has(sets.CaptureEntry(k)) {
			return m.baseInPlace(a)
		}
	}
	return false
}

// guarded tells whether the entries are in place that a server must not be without.
func (m *Mode) guarded(k vserver.ServerKey) bool {
	f, ok := m.frontends.Get(k)
	if !ok {
		return false
	}
	for _, e := range sets.Guards(&f) {
		if _, there := m.sets.Members.Believed(e); !there {
			return false
		}
	}
	return true
}

// served tells whether a virtual server is there at an address: without any the
// host itself would get what comes for it.
func (m *Mode) served(a netip.Addr) bool {
	for _, k := range m.addresses.Claimants(a) {
		if _, ok := m.servers.Believed(k); ok {
			return true
		}
	}
	return false
}

// leftovers are where virtual servers are still to be deleted.
type leftovers struct {
	addrs map[netip.Addr]struct{}
	ports map[port]struct{}
	// nodes are the addresses of NodePorts in place; nil until somebody asks.
	nodes map[netip.Addr]struct{}
}

// port is a port of any address.
type port struct {
	protocol netkey.Protocol
	number   uint16
}

// left computes the leftovers once in a pass.
func (m *Mode) left() *leftovers {
	if m.leftovers == nil {
		m.leftovers = &leftovers{addrs: map[netip.Addr]struct{}{}, ports: map[port]struct{}{}}
		for k := range m.servers.AllDeletes() {
			m.leftovers.addrs[k.Addr] = struct{}{}
			m.leftovers.ports[port{k.Protocol, k.Port}] = struct{}{}
		}
	}
	return m.leftovers
}

// serverLeftAt tells whether a virtual server at an address is still to be
// deleted. Where the address is not marked it is all that tells that such a
// server is ours, so it goes after it.
func (m *Mode) serverLeftAt(a netip.Addr) bool {
	_, left := m.left().addrs[a]
	return left
}

// nodePortAt tells whether a virtual server of a NodePort is in place at an address. When
// the node has lost that, but a Service was not compiled for it yet, its servers there are
// still wanted and go with the next pass: they are known until then. All servers are walked
// for it, once in a pass in which the node has lost an address.
func (m *Mode) nodePortAt(a netip.Addr) bool {
	l := m.left()
	if l.nodes == nil {
		l.nodes = map[netip.Addr]struct{}{}
		for k := range m.servers.Actual() {
			if f, wanted := m.frontends.Get(k); wanted && f.Kind == model.KindNodePort {
				l.nodes[k.Addr] = struct{}{}
			}
		}
	}
	_, there := l.nodes[a]
	return there
}

// serverLeftOn tells it of a port.
func (m *Mode) serverLeftOn(p model.Protocol, number uint16) bool {
	_, left := m.left().ports[port{p, number}]
	return left
}

// needed tells whether an entry has to stay because something it guards or marks
// is still to be deleted.
func (m *Mode) needed(k sets.Key) bool {
	switch m.sets.Purpose(k.Set) {
	case sets.IPVSIPs:
		return m.addresses.Addresses.PendingDelete(k.Entry.Addr) || m.serverLeftAt(k.Entry.Addr)
	case sets.DirectIPs:
		return m.addresses.Detached.PendingDelete(k.Entry.Addr)
	case sets.NodePortIPs:
		return m.serverLeftAt(k.Entry.Addr) || m.nodePortAt(k.Entry.Addr)
	case sets.NodePortTCP:
		return m.nodePortNeeded(model.TCP, k.Entry.Port)
	case sets.NodePortUDP:
		return m.nodePortNeeded(model.UDP, k.Entry.Port)
	case sets.CaptureIPs:
		return false
	case sets.LoopBack, sets.Detour, sets.HealthCheck, sets.NodePortLocalTCP, sets.NodePortLocalUDP:
		return false
	}
	server := vserver.ServerKey{Addr: k.Entry.Addr, Port: k.Entry.Port, Protocol: netkey.Protocol(k.Entry.Protocol)}
	return m.servers.PendingDelete(server) || ownership.Names(m.sets.Purpose(k.Set)) && m.unnamed(server)
}

// nodePortNeeded tells it of a NodePort.
func (m *Mode) nodePortNeeded(p model.Protocol, number uint16) bool {
	return m.serverLeftOn(p, number) || slices.ContainsFunc(m.host.NodePorts, func(a netip.Addr) bool {
		return m.unnamed(vserver.ServerKey{Addr: a, Port: number, Protocol: p})
	})
}

// unnamed reports whether nothing that stays tells that a server in place is ours: what is to
// name it from now on, in another set, could not be added yet.
func (m *Mode) unnamed(server vserver.ServerKey) bool {
	if !m.servers.Known(server) {
		return false
	}
	f := m.facts()
	f.Bound = func(netip.Addr) bool { return false } // its address may go with this pass
	f.Has = func(set string, e ipset.Entry) bool {
		k := sets.Key{Set: set, Entry: e}
		_, there := m.sets.Members.Believed(k)
		_, stays := m.sets.Members.Desired(k)
		return there && stays
	}
	return !f.Owns(server)
}

// facts are what ownership goes by: what is wanted, or in the kernel, or may be.
func (m *Mode) facts() ownership.Facts {
	return ownership.Facts{
		Excluded: m.config.ExcludeCIDRs,
		Bound:    m.addresses.Addresses.Known,
		OnLink: func(a netip.Addr) bool {
			_, there := m.host.Links[a]
			return there
		},
		HasSet: func(set string) bool {
			_, there := m.sets.Sets.Believed(set)
			return there
		},
		Has: func(set string, e ipset.Entry) bool { return m.sets.Members.Known(sets.Key{Set: set, Entry: e}) },
	}
}

// ownedServer is the owner predicate of virtual servers.
func (m *Mode) ownedServer(k vserver.ServerKey) bool {
	f := m.facts()
	return f.Owns(k)
}

func alike(struct{}, struct{}) bool  { return true }
func same[V comparable](a, b V) bool { return a == b }
