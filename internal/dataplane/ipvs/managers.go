package ipvs

import (
	"context"
	"net/netip"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/announce"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/addresses"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/audit"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/chains"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/describe"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/destinations"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/migrate"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/servers"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/sets"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/netfilter"
	"github.com/kube-ipvs/kube-ipvs/internal/delta"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nftables"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// managers own the rows of the mode. Set changes which rows are desired, and Apply writes them.
type managers struct {
	sets         *sets.Manager
	chains       *chains.Manager
	servers      *servers.Manager
	destinations *destinations.Manager
	addresses    *addresses.Manager
	announced    *announce.Manager
	tables       *delta.Table[nftables.Key, struct{}]
}

// wireTables joins each table to its kernel package, and defines which rows are ours and what they wait for
// (prerequisites.go).
func wireTables(m *Mode) {
	m.order = &order{config: &m.config, host: &m.host, frontends: m.frontends}
	m.base = &base{host: &m.host}
	m.pickup = &pickup{kernel: m.deps.Pickup, counts: map[model.Protocol]int{}}
	m.sets = sets.New(sets.Options{
		Log: m.log, Kernel: m.deps.Sets, Families: m.config.Families, HoldMember: m.order.needed,
		Release: func(ctx context.Context, set string) error { return m.chains.ReleaseSet(ctx, set) },
	})
	m.chains = chains.New(chains.Options{
		Log: m.log, Kernel: m.deps.Rules, Config: m.config.rules(), Frontends: m.frontends,
		Order: chains.Order{
			Owned: func(k netfilter.ChainKey) bool { return m.handoff.OwnsChain(k) },
			Wait:  func(k netfilter.ChainKey) bool { return m.takeover.Spares(k) },
			Hold:  func(k netfilter.ChainKey) bool { return m.takeover.Keeps(k) },
		},
	})
	wireServers(m)
	m.addresses = addresses.New(addresses.Options{
		Log: m.log, Kernel: m.deps.Links, Entries: m.sets, Families: m.config.Families,
		Binding: m.config.Binding, ServiceCIDRs: m.config.ServiceCIDRs, BaseChanged: m.base.want,
		Order: addresses.Order{
			WaitRoute:    func(p netip.Prefix) bool { return !m.order.baseInPlace(p.Addr()) },
			WaitAddress:  func(a netip.Addr) bool { return !m.order.baseInPlace(a) || !m.order.marks(a) || !m.order.served(a) },
			HoldAddress:  func(a netip.Addr) bool { return !m.order.marks(a) && m.order.serverLeftAt(a) },
			WaitDetached: func(a netip.Addr) bool { return !m.order.marked(a) },
		},
	})
	m.tables = delta.NewTable(netfilter.ProxyTableStore{Tables: m.deps.Tables}, delta.Options[nftables.Key, struct{}]{
		Name: "nftables", Compare: netfilter.CompareTables, Equal: func(struct{}, struct{}) bool { return true },
		Owned: func(k nftables.Key) bool { return m.handoff.OwnsTable(k) },
		Hold:  func(nftables.Key, bool) bool { return m.takeover.Holding() },
	})
	m.announced = announce.New(announce.Options{
		Log: m.log, Kernel: m.deps.Announced, Table: m.config.AnnounceTable, InPlace: m.order.answers,
		Left: func() bool { return m.handoff.LeavesAnnounced() },
	})
	m.pipeline = dataplane.NewPipeline(
		m.sets.Sets,
		m.sets.Members,
		m.chains.Chains,
		m.chains.Jumps,
		m.servers,
		m.destinations,
		m.addresses.Routes,
		m.addresses.Stage(),
		m.addresses.Detached,
		m.tables,
		m.announced.Rows,
	)
}

// wireServers makes the tables of servers and destinations. A server that was deleted or lost took its
// destinations with it.
func wireServers(m *Mode) {
	m.servers = servers.New(servers.Options{
		Log: m.log, Kernel: m.deps.Servers, Frontends: m.frontends, Hold: m.sets, Owned: m.order.owns,
		Wait: func(k vserver.ServerKey) bool { return !m.order.baseInPlace(k.Addr) || !m.order.guarded(k) },
		Deleted: func() {
			m.order.leftovers = nil
			m.destinations.OnServersDeleted()
		},
	})
	m.destinations = destinations.New(destinations.Options{
		Log: m.log, Kernel: m.deps.Servers, Frontends: m.frontends, Servers: m.servers, Node: m.config.Node,
		Wait:       func(k vserver.DestinationKey) bool { return !m.order.hasServer(k.Server) },
		Hold:       func(k vserver.DestinationKey, orphans bool) bool { return m.servers.Deleting(k.Server, orphans) },
		ServerLost: func(k vserver.ServerKey) { m.serverLost(k) },
	})
}

// wireParts makes the parts that read several tables.
func wireParts(m *Mode) {
	m.takeover = migrate.NewTakeover(migrate.TakeoverOptions{
		Log: m.log, Families: m.config.Families, Chains: m.chains.Chains, Tables: m.tables, BaseChanged: m.base.want,
		Updates: func() int {
			updates := -m.servers.Paced()
			for _, t := range m.pipeline.Tables() {
				updates += t.Updates
			}
			return updates
		},
	})
	m.handoff = migrate.NewHandoff(m.config.Families, m.deps.Rules, m.deps.Tables, migrate.Rows{
		Sets: m.sets, Chains: m.chains, Servers: m.servers, Destinations: m.destinations, Addresses: m.addresses,
	})
	m.order.sets, m.order.chains, m.order.servers, m.order.addresses = m.sets, m.chains, m.servers, m.addresses
	m.order.destinations = m.destinations
	m.order.takeover = m.takeover
	m.base.sets, m.base.chains, m.base.addresses, m.base.takeover = m.sets, m.chains, m.addresses, m.takeover
	m.flows = &flows{
		kernel: m.deps.Flows, frontends: m.frontends, noted: map[vserver.ServerKey][]netip.AddrPort{},
		chains: m.chains, servers: m.servers, destinations: m.destinations, addresses: m.addresses,
	}
	m.flows.subscribe(m.servers.Table)
	m.losses = &losses{&m.managers}
	m.Timed, m.Drainer = m.destinations, m.destinations
	m.Auditor = audit.New(audit.Options{
		Log: m.log, Kernel: m.deps.Servers, Owns: m.order.owns, ServerLost: m.serverLost, Dispatch: m.takeover.Inspect, KeepTuned: m.deps.KeepTuned,
		Sets: m.sets, Chains: m.chains, Servers: m.servers, Destinations: m.destinations, Addresses: m.addresses, Tables: m.tables, Announced: m.announced,
	})
	m.Describer = describe.New(describe.Options{
		Config: m.config.rules(), Frontends: m.frontends, PickedUp: m.pickup.inForce,
		Sets: m.sets, Chains: m.chains, Servers: m.servers, Destinations: m.destinations, Addresses: m.addresses, Tables: m.tables, Announced: m.announced,
	})
}
