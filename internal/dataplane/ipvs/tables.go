package ipvs

import (
	"net/netip"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/addresses"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/destinations"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/servers"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/sets"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/netfilter"
	"github.com/kube-ipvs/kube-ipvs/internal/delta"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nftables"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
)

// makeTables joins each table to its store and says who owns its rows and what they wait for.
func (m *Mode) makeTables() {
	m.order = &order{config: &m.config, host: &m.host, frontends: m.frontends, spared: m.spared}
	m.sets = sets.New(sets.Options{
		Log: m.log, Kernel: m.deps.Sets, Families: m.config.Families, HoldMember: m.order.needed, Release: m.releaseSet,
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
		Log: m.log, Kernel: m.deps.Servers, Frontends: m.frontends, Hold: m.sets, Owned: m.order.owns,
		Wait:    func(k vserver.ServerKey) bool { return !m.order.baseInPlace(k.Addr) || !m.order.guarded(k) },
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
			WaitRoute:    func(p netip.Prefix) bool { return !m.order.baseInPlace(p.Addr()) },
			WaitAddress:  func(a netip.Addr) bool { return !m.order.baseInPlace(a) || !m.order.marks(a) || !m.order.served(a) },
			HoldAddress:  func(a netip.Addr) bool { return !m.order.marks(a) && m.order.serverLeftAt(a) },
			WaitDetached: func(a netip.Addr) bool { return !m.order.marked(a) },
		},
	})
	m.addresses.Addresses.OnApplied(func(e delta.Applied[netip.Addr, struct{}]) { m.addressAdded(e.Op, e.Key) })
	m.addresses.Detached.OnApplied(func(e delta.Applied[netip.Addr, bool]) { m.addressAdded(e.Op, e.Key) })
	m.addresses.Routes.OnApplied(func(e delta.Applied[netip.Prefix, struct{}]) { m.rangeAdded(e.Op, e.Key) })
	m.order.sets, m.order.chains, m.order.jumps = m.sets, m.chains, m.jumps
	m.order.servers, m.order.addresses = m.servers, m.addresses
	m.tables = delta.NewTable(netfilter.ProxyTableStore{Tables: m.deps.Tables}, delta.Options[nftables.Key, struct{}]{
		Name: "nftables", Compare: netfilter.CompareTables, Equal: alike, Owned: m.ownedTable,
		Hold: func(nftables.Key, bool) bool { return m.takeover.holding },
	})
}

// serversDeleted follows servers that were deleted: their destinations went with them.
func (m *Mode) serversDeleted() {
	m.order.leftovers = nil
	m.destinations.OnServersDeleted()
}

// allChains has chains written at once, however many there are: those that are deleted
// refer to each other, and the room empties all of a call before it removes the first.
const allChains = 1 << 20

func alike(struct{}, struct{}) bool  { return true }
func same[V comparable](a, b V) bool { return a == b }
