package ipvs

import (
	"net/netip"

	"github.com/kube-ipvs/kube-ipvs/internal/delta"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/ipset"
)

// makeTables joins each table to its store and says who owns its rows and what
// they wait for.
func (m *Mode) makeTables() {
	m.sets = delta.NewTable(setStore{m, m.deps.Sets}, delta.Options[string, ipset.Set]{
		Name: "sets", Compare: m.catalogue.compare, Equal: sameSet,
		Hold: func(name string, _ bool) bool { return m.holdsMark(name) },
	})
	m.members = delta.NewTable(memberStore{m, m.deps.Sets}, delta.Options[memberKey, struct{}]{
		Name: "members", Compare: m.catalogue.compareMembers, Equal: alike, Batch: 4096,
		Hold: func(k memberKey, _ bool) bool { _, marked := m.marked[k]; return marked },
	})
	both := &ruleStore{rules: m.deps.Rules}
	m.chains = delta.NewTable(chainStore{both}, delta.Options[rules.ChainKey, rules.Chain]{
		Name: "chains", Compare: rules.ChainKey.Compare, Equal: same[rules.Chain], Owned: OwnedChain,
	})
	m.jumps = delta.NewTable(jumpStore{both}, delta.Options[rules.JumpKey, rules.Jump]{
		Name: "jumps", Compare: compareJumps, Equal: same[rules.Jump],
	})
	m.servers = delta.NewTable(serverStore{m.deps.Servers}, delta.Options[vserver.ServerKey, vserver.Server]{
		Name: "servers", Compare: vserver.ServerKey.Compare, Equal: same[vserver.Server], Owned: m.ownedServer,
		Wait: func(k vserver.ServerKey) bool { return !m.marks(k.Addr) || !m.accepts(k) },
	})
	m.destinations = delta.NewTable(destinationStore{m, m.deps.Servers}, delta.Options[vserver.DestinationKey, vserver.Destination]{
		Name: "destinations", Compare: vserver.DestinationKey.Compare, Equal: same[vserver.Destination],
		Hold: func(k vserver.DestinationKey, orphans bool) bool { return m.servers.Deleting(k.Server, orphans) },
	})
	m.addresses = delta.NewTable(addressStore{m.deps.Links}, delta.Options[netip.Addr, struct{}]{
		Name: "addresses", Compare: netip.Addr.Compare, Equal: alike,
		Wait: func(a netip.Addr) bool { return !m.marks(a) },
		Hold: func(a netip.Addr, _ bool) bool { return !m.marks(a) && m.leftAt(a) },
	})
}

// marks tells whether the entry is in place that tells that an address is ours.
// Before it is, nothing is put at the address: a process that died then would
// leave behind what nobody knows, and the address would answer on every port.
func (m *Mode) marks(a netip.Addr) bool {
	_, ok := m.members.Believed(markOf(a))
	return ok
}

// leftAt tells whether a virtual server at an address is still to be deleted.
// Without a mark the address is all that tells that such a server is ours, so it
// goes after it.
func (m *Mode) leftAt(a netip.Addr) bool {
	for k := range m.servers.AllDeletes() {
		if k.Addr == a {
			return true
		}
	}
	return false
}

// accepts tells whether the filter lets traffic to the server through, and the
// masquerade rule sees it.
func (m *Mode) accepts(k vserver.ServerKey) bool {
	_, ok := m.members.Believed(acceptOf(k))
	return ok
}

func alike(struct{}, struct{}) bool  { return true }
func same[V comparable](a, b V) bool { return a == b }

// ownedServer is the owner predicate of virtual servers: they carry no mark of
// their own, so their address tells (architecture 11).
func (m *Mode) ownedServer(k vserver.ServerKey) bool {
	if m.config.excluded(k.Addr) {
		return false
	}
	if m.addresses.Known(k.Addr) {
		return true
	}
	return m.members.Known(markOf(k.Addr))
}

// holdsMark tells whether a set has entries that must outlive virtual servers or
// addresses still to delete; destroying it would take them away.
func (m *Mode) holdsMark(set string) bool {
	for k := range m.marked {
		if k.Set == set {
			return true
		}
	}
	return false
}
