package ipvs

import (
	"net/netip"

	"github.com/kube-ipvs/kube-ipvs/internal/delta"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/ipset"
)

// makeTables joins each table to its store and says who owns its rows and what
// they wait for.
func (m *Mode) makeTables() {
	m.sets = delta.NewTable(setStore{m, m.deps.Sets}, delta.Options[string, ipset.Set]{
		Name: "sets", Compare: m.catalogue.compare, Equal: sameSet,
		Hold: func(name string, _ bool) bool { return m.holdsEntries(name) },
	})
	m.members = delta.NewTable(memberStore{m, m.deps.Sets}, delta.Options[memberKey, struct{}]{
		Name: "members", Compare: m.catalogue.compareMembers, Equal: alike, Batch: 4096,
		Hold: func(k memberKey, _ bool) bool { return m.isMark(k) && m.leftAt(k.Entry.Addr) },
	})
	m.chains = delta.NewTable(chainStore{m.deps.Rules}, delta.Options[rules.ChainKey, rules.Chain]{
		Name: "chains", Compare: rules.ChainKey.Compare, Equal: same[rules.Chain], Owned: OwnedChain,
	})
	m.jumps = delta.NewTable(jumpStore{m.deps.Rules}, delta.Options[rules.JumpKey, rules.Jump]{
		Name: "jumps", Compare: compareJumps, Equal: same[rules.Jump],
	})
	m.servers = delta.NewTable(serverStore{m.deps.Servers}, delta.Options[vserver.ServerKey, vserver.Server]{
		Name: "servers", Compare: vserver.ServerKey.Compare, Equal: same[vserver.Server], Owned: m.ownedServer,
		Wait: func(k vserver.ServerKey) bool { return !m.baseInPlace(k.Addr) || !m.marks(k.Addr) || !m.accepts(k) },
	})
	m.destinations = delta.NewTable(destinationStore{m, m.deps.Servers}, delta.Options[vserver.DestinationKey, vserver.Destination]{
		Name: "destinations", Compare: vserver.DestinationKey.Compare, Equal: same[vserver.Destination],
		Wait: func(k vserver.DestinationKey) bool { _, there := m.servers.Believed(k.Server); return !there },
		Hold: func(k vserver.DestinationKey, orphans bool) bool { return m.servers.Deleting(k.Server, orphans) },
	})
	m.addresses = delta.NewTable(addressStore{m.deps.Links}, delta.Options[netip.Addr, struct{}]{
		Name: "addresses", Compare: netip.Addr.Compare, Equal: alike,
		Wait: func(a netip.Addr) bool { return !m.baseInPlace(a) || !m.marks(a) || !m.served(a) },
		Hold: func(a netip.Addr, _ bool) bool { return !m.marks(a) && m.serverLeftAt(a) },
	})
}

// baseInPlace tells whether the sets, chains and jumps of an address's family
// are. Nothing new attracts traffic before that; what is there goes on changing.
func (m *Mode) baseInPlace(a netip.Addr) bool {
	f := model.FamilyOf(a)
	for name := range m.sets.AllUpdates() {
		if m.catalogue.sets[name].Family == setFamily(f) {
			return false
		}
	}
	for k := range m.chains.AllUpdates() {
		if k.Family == rules.Family(f) {
			return false
		}
	}
	for k := range m.jumps.AllUpdates() {
		if k.Family == rules.Family(f) {
			return false
		}
	}
	return true
}

// marks tells whether the entry is in place that tells that an address is ours.
// Before it is, nothing is put at the address: a process that died then would
// leave behind what nobody knows, and the address would answer on every port.
func (m *Mode) marks(a netip.Addr) bool {
	_, ok := m.members.Believed(markOf(a))
	return ok
}

// accepts tells whether the filter lets traffic to the server through, and the
// masquerade rule sees it.
func (m *Mode) accepts(k vserver.ServerKey) bool {
	_, ok := m.members.Believed(acceptOf(k))
	return ok
}

// served tells whether a virtual server is there at an address: without any the
// host itself would get what comes for it.
func (m *Mode) served(a netip.Addr) bool {
	for _, k := range m.addressClaims.Claimants(a) {
		if _, ok := m.servers.Believed(serverKey(k)); ok {
			return true
		}
	}
	return false
}

func (m *Mode) isMark(k memberKey) bool {
	return k.Set == setName(model.IPv4, setIPVSIPs) || k.Set == setName(model.IPv6, setIPVSIPs)
}

// holdsEntries tells whether a set has entries that could not be deleted yet;
// destroying it would take them away.
func (m *Mode) holdsEntries(set string) bool {
	for k := range m.members.AllDeletes() {
		if k.Set == set {
			return true
		}
	}
	return false
}

// serverLeftAt tells whether a virtual server at an address is still to be
// deleted. Where the address is not marked it is all that tells that such a
// server is ours, so it goes after it.
func (m *Mode) serverLeftAt(a netip.Addr) bool {
	if m.leftovers == nil {
		m.leftovers = map[netip.Addr]struct{}{}
		for k := range m.servers.AllDeletes() {
			m.leftovers[k.Addr] = struct{}{}
		}
	}
	_, left := m.leftovers[a]
	return left
}

// leftAt tells whether anything at an address is still to be deleted; its mark
// goes last.
func (m *Mode) leftAt(a netip.Addr) bool {
	return m.addresses.PendingDelete(a) || m.serverLeftAt(a)
}

// ownedServer is the owner predicate of virtual servers: they carry no mark of
// their own, so their address tells, on the device or in KUBE-IPVS-IPS, or their
// entry in KUBE-CLUSTER-IP. Somebody has to take all three away to hide one.
func (m *Mode) ownedServer(k vserver.ServerKey) bool {
	if m.config.excluded(k.Addr) {
		return false
	}
	if m.addresses.Known(k.Addr) {
		return true
	}
	return m.members.Known(markOf(k.Addr)) || m.members.Known(acceptOf(k))
}

func alike(struct{}, struct{}) bool  { return true }
func same[V comparable](a, b V) bool { return a == b }
