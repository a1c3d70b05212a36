package ipvs

import (
	"context"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/sets"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/netfilter"
	"github.com/kube-ipvs/kube-ipvs/internal/delta"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nftables"
)

// Where kube-proxy carried Services in its iptables or nftables mode, its rules rewrite
// the destination in PREROUTING and OUTPUT: a packet that they take never comes to IPVS.
// So they carry traffic until all our rows are in place beside them, and are removed last
// (internal/DECISIONS.md, Rules of another proxy mode). The chain that both modes have, nat
// KUBE-SERVICES, changes in one restore; nftables tables go in one transaction. From one packet
// to the next new connections are ours; those that kube-proxy has rewritten are in the
// connection table and need no rule.

// takeover is what is known of the dispatch of another mode.
type takeover struct {
	// holding: it is left alone until ours is in place.
	holding bool
	begun   time.Time
	retries int
	said    bool // that it waits for input
}

// A row that cannot be written for good is not waited for without end: what it would carry
// is better lost than all that changes from then on. It has had its chance after so many
// passes that retried it, and so much time.
const (
	enoughRetries = 4
	enoughTime    = 10 * time.Second
)

// beginTakeover notes what was read. Reading again is no new beginning.
func (m *Mode) beginTakeover() {
	switch foreign := m.foreignDispatch(); {
	case !foreign || m.cleared:
		m.takeover = takeover{}
	case !m.takeover.holding:
		m.takeover = takeover{holding: true, begun: time.Now()}
		m.wantBase()
	}
}

// handsOver tells, after a pass, whether it is time for the dispatch to change hands. While
// some input cannot be read the old dispatch carries Services that are unknown here (law 3).
func (m *Mode) handsOver(opts dataplane.ApplyOptions) bool {
	t := &m.takeover
	if !t.holding || opts.KeepOrphans {
		m.sayWaiting(t.holding)
		return false
	}
	if opts.Retry {
		t.retries++
	}
	patient := t.retries < enoughRetries || time.Since(t.begun) < enoughTime
	t.holding = patient && m.lacking()
	if !t.holding {
		m.wantBase()
	}
	return !t.holding
}

// masqueradeVIPs is a rule of the time in between. The VIPs are bound by then, so the host
// dials them from themselves, and the rules that still carry send that to a pod, which may
// be on another node: no answer to a VIP comes back from there.
func (c Config) masqueradeVIPs(w ruleWriter) netfilter.Rule {
	return netfilter.If(w.in(sets.IPVSIPs, src), netfilter.Local(netfilter.Src)).Then(netfilter.SNAT{Random: c.Masquerade.Random(w.family)})
}

// sayWaiting tells, once, that changes have no effect yet: rules that nobody keeps up to
// date come before ours.
func (m *Mode) sayWaiting(waiting bool) {
	if waiting && !m.takeover.said {
		m.log.Warn("rules of kube-proxy's other mode stay and serve the previous state until all input can be read")
	}
	m.takeover.said = waiting
}

// lacking tells whether anything of ours is not in place yet, resting rows included.
func (m *Mode) lacking() bool {
	updates := m.servers.Counts().Updates - m.servers.Paced()
	for _, c := range []delta.Counts{
		m.sets.Sets.Counts(), m.sets.Members.Counts(), m.jumps.Counts(), m.destinations.Counts(), m.addresses.Routes.Counts(), m.addresses.Addresses.Counts(), m.addresses.Detached.Counts(),
	} {
		updates += c.Updates
	}
	for k := range m.chains.AllUpdates() {
		if !m.spared(k) {
			updates++
		}
	}
	return updates > 0
}

// foreignDispatch reports whether rules of another mode carry Services.
func (m *Mode) foreignDispatch() bool {
	if m.tables.Counts().Orphans > 0 {
		return true
	}
	for _, f := range m.config.Families {
		k := netfilter.Nat(f, chainServices)
		if c, _ := m.chains.Believed(k); dispatchesForOthers(k, c) {
			return true
		}
	}
	return false
}

// dispatchesForOthers reports whether a chain is the one of Services, as iptables mode has it.
func dispatchesForOthers(k netfilter.ChainKey, c netfilter.Chain) bool {
	if k.Table != "nat" || k.Name != chainServices {
		return false
	}
	for l := range c.Lines() {
		if netfilter.OnlyIPTables(netfilter.ChainKey{Family: k.Family, Table: k.Table, Name: l.JumpsTo()}) {
			return true
		}
	}
	return false
}

// spared reports whether a chain is left alone for now.
func (m *Mode) spared(k netfilter.ChainKey) bool {
	if !m.takeover.holding {
		return false
	}
	have, _ := m.chains.Believed(k)
	return netfilter.OnlyIPTables(k) || dispatchesForOthers(k, have)
}

// referred reports whether a chain of iptables mode may still be referred to by the dispatch,
// because that could not be replaced: its deletion would empty it under the packets.
func (m *Mode) referred(k netfilter.ChainKey) bool {
	if !netfilter.OnlyIPTables(k) {
		return false
	}
	dispatch := netfilter.ChainKey{Family: k.Family, Table: "nat", Name: chainServices}
	have, _ := m.chains.Believed(dispatch) // as it was read, if its state is unknown
	return dispatchesForOthers(dispatch, have)
}

// inspectDispatch says when another program goes on writing what was taken over: the two
// would undo each other's work for ever.
func (m *Mode) inspectDispatch(context.Context) (dataplane.Drift, error) {
	foreign := !m.takeover.holding && m.foreignDispatch()
	if foreign && !m.rival {
		m.log.Warn("a kube-proxy also writes rules on this node: stop it")
	}
	m.rival = foreign
	return nil, nil
}

// ownedTable reports whether a table is kube-proxy's, of a family that is served here, and
// not left to a successor.
func (m *Mode) ownedTable(k nftables.Key) bool {
	return netfilter.IsProxyTable(k, m.config.Families) && m.successor != SuccessorNFTables
}
