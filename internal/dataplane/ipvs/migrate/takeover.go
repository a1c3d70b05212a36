package migrate

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/netfilter"
	"github.com/kube-ipvs/kube-ipvs/internal/delta"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nftables"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// TakeoverOptions describe a Takeover.
type TakeoverOptions struct {
	Log      *zap.Logger
	Families []model.Family
	Chains   delta.View[netfilter.ChainKey, netfilter.Chain]
	Tables   delta.View[nftables.Key, struct{}]
	// Updates returns how many rows of all tables are not in place, without those that are paced.
	Updates func() int
	// BaseChanged is called when a takeover begins or ends: it has rules of its own.
	BaseChanged func()
}

// Takeover replaces the dispatch of another proxy mode. Rules of kube-proxy's iptables or nftables
// mode rewrite the destination in PREROUTING and OUTPUT, so a packet that they take never comes to
// IPVS. They carry traffic until all our rows are in place beside them, and are removed last
// (internal/DECISIONS.md, Rules of another proxy mode). The chain that both modes have, nat
// KUBE-SERVICES, changes in one restore; nftables tables go in one transaction. From one packet to the
// next new connections are ours. Connections that kube-proxy has rewritten are in the connection table
// and need no rule.
type Takeover struct {
	TakeoverOptions

	// holding leaves the other dispatch alone until ours is in place.
	holding bool
	begun   time.Time
	retries int
	waiting bool // for input; logged
	rival   bool // another program was found to write its dispatch again
	cleared bool // no Service is wanted any more
}

// A row that cannot be written must not delay a takeover for ever. It is given up after so many passes
// that retried it, and so much time.
const (
	enoughRetries = 4
	enoughTime    = 10 * time.Second
)

// NewTakeover returns a takeover that has not begun.
func NewTakeover(o TakeoverOptions) *Takeover { return &Takeover{TakeoverOptions: o} }

// Holding reports whether a takeover is in progress.
func (t *Takeover) Holding() bool { return t.holding }

// Begin begins a takeover if the kernel, as it was read, has the dispatch of another mode. A
// takeover in progress continues.
func (t *Takeover) Begin() {
	switch foreign := t.ForeignDispatch(); {
	case !foreign || t.cleared:
		t.reset()
	case !t.holding:
		t.reset()
		t.holding, t.begun = true, time.Now()
		t.BaseChanged()
	}
}

// Clear ends a takeover: all that is left is to be deleted.
func (t *Takeover) Clear() {
	t.reset()
	t.cleared = true
}

func (t *Takeover) reset() { t.holding, t.begun, t.retries, t.waiting = false, time.Time{}, 0, false }

// Ends reports, after a pass, whether the dispatch changes hands now. While some input cannot be read,
// the old dispatch carries Services that are unknown here (law 3).
func (t *Takeover) Ends(opts dataplane.ApplyOptions) bool {
	if !t.holding || opts.KeepOrphans {
		t.logWaiting(t.holding)
		return false
	}
	if opts.Retry {
		t.retries++
	}
	patient := t.retries < enoughRetries || time.Since(t.begun) < enoughTime
	t.holding = patient && t.anythingPending()
	if !t.holding {
		t.BaseChanged()
	}
	return !t.holding
}

// logWaiting logs once that changes have no effect yet: rules that no program keeps up to date come
// before ours.
func (t *Takeover) logWaiting(waiting bool) {
	if waiting && !t.waiting {
		t.Log.Warn("rules of kube-proxy's other mode stay and serve the previous state until all input can be read")
	}
	t.waiting = waiting
}

// anythingPending reports whether a row of ours is not in place yet, including rows that rest.
func (t *Takeover) anythingPending() bool {
	updates := t.Updates()
	for k := range t.Chains.AllUpdates() {
		if t.Spares(k) {
			updates--
		}
	}
	return updates > 0
}

// ForeignDispatch reports whether rules of another mode carry Services.
func (t *Takeover) ForeignDispatch() bool {
	if t.Tables.Counts().Orphans > 0 {
		return true
	}
	for _, f := range t.Families {
		k := netfilter.Nat(f, netfilter.ChainServices)
		if c, _ := t.Chains.Believed(k); dispatchesForOthers(k, c) {
			return true
		}
	}
	return false
}

// dispatchesForOthers reports whether a chain is the one of Services, as iptables mode has it.
func dispatchesForOthers(k netfilter.ChainKey, c netfilter.Chain) bool {
	if k.Table != "nat" || k.Name != netfilter.ChainServices {
		return false
	}
	for l := range c.Lines() {
		if netfilter.OnlyIPTables(netfilter.ChainKey{Family: k.Family, Table: k.Table, Name: l.JumpsTo()}) {
			return true
		}
	}
	return false
}

// Spares reports whether a chain is left alone for now.
func (t *Takeover) Spares(k netfilter.ChainKey) bool {
	if !t.holding {
		return false
	}
	have, _ := t.Chains.Believed(k)
	return netfilter.OnlyIPTables(k) || dispatchesForOthers(k, have)
}

// Keeps reports whether a chain must not be deleted: it is spared, or it is a chain of iptables mode to
// which the dispatch may still refer. A deletion would empty such a chain under the packets.
func (t *Takeover) Keeps(k netfilter.ChainKey) bool {
	if t.Spares(k) {
		return true
	}
	if !netfilter.OnlyIPTables(k) {
		return false
	}
	dispatch := netfilter.Nat(k.Family, netfilter.ChainServices)
	have, _ := t.Chains.Believed(dispatch) // as it was read, if its state is unknown
	return dispatchesForOthers(dispatch, have)
}

// Inspect logs once when another program writes again what was taken over: the two would undo each
// other's work for ever.
func (t *Takeover) Inspect(context.Context) (dataplane.Drift, error) {
	foreign := !t.holding && t.ForeignDispatch()
	if foreign && !t.rival {
		t.Log.Warn("a kube-proxy also writes rules on this node: stop it")
	}
	t.rival = foreign
	return nil, nil
}
