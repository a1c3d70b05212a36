package iptables

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/netfilter"
	"github.com/kube-ipvs/kube-ipvs/internal/delta"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nftables"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// tables are the tables of the mode, in stage order. One write carries out chains and entries
// (write.go).
type tables struct {
	families []model.Family
	chains   *delta.Table[netfilter.ChainKey, netfilter.Chain]
	entries  *delta.Table[entry, struct{}]
	jumps    *delta.Table[netfilter.JumpKey, netfilter.Jump]
	nftables *delta.Table[nftables.Key, struct{}]
	// sizes counts the desired entries of each dispatch chain.
	sizes map[netfilter.ChainKey]int
}

// newTables joins each table to its kernel package, and sets what its rows wait for.
func newTables(families []model.Family, deps Deps, audit *auditor, takeover *takeover) *tables {
	t := &tables{families: families, sizes: map[netfilter.ChainKey]int{}}
	t.chains = delta.NewTable(nil, delta.Options[netfilter.ChainKey, netfilter.Chain]{
		Name: "chains", Compare: netfilter.ChainKey.Compare, Equal: same[netfilter.Chain],
	})
	t.entries = delta.NewTable(nil, delta.Options[entry, struct{}]{Name: "entries", Compare: compareEntries, Equal: same[struct{}]})
	t.jumps = delta.NewTable(jumpStore{netfilter.JumpStore{Rules: deps.Rules, Jumps: jumps}, audit}, delta.Options[netfilter.JumpKey, netfilter.Jump]{
		Name: "jumps", Compare: jumps.Compare, Equal: same[netfilter.Jump],
		Wait: func(k netfilter.JumpKey) bool { return !t.hasChain(netfilter.TargetOf(k)) },
	})
	t.nftables = delta.NewTable(netfilter.ProxyTableStore{Tables: deps.Tables}, delta.Options[nftables.Key, struct{}]{
		Name: "nftables", Compare: netfilter.CompareTables, Equal: same[struct{}],
		Owned: func(k nftables.Key) bool { return takeover.owns(k, families) },
		Hold:  func(nftables.Key, bool) bool { return takeover.holding },
	})
	return t
}

func same[V comparable](a, b V) bool { return a == b }

// hasChain reports whether a chain is in place.
func (t *tables) hasChain(k netfilter.ChainKey) bool {
	_, ok := t.chains.Believed(k)
	return ok
}

// want sets whether an entry is desired, and counts the entries of its chain.
func (t *tables) want(e entry, wanted bool) {
	_, was := t.entries.Desired(e)
	switch {
	case wanted && !was:
		t.sizes[e.chain]++
		t.entries.SetDesired(e, struct{}{})
	case !wanted && was:
		t.sizes[e.chain]--
		t.entries.DeleteDesired(e)
	}
}

// desiredDispatch returns the desired dispatch chains with all their entries; nil asks for all.
func (t *tables) desiredDispatch(which map[netfilter.ChainKey]struct{}) map[netfilter.ChainKey]netfilter.Chain {
	lines := map[netfilter.ChainKey][]netfilter.Line{}
	for k := range t.chains.AllDesired() {
		if _, ok := which[k]; isDispatch(k) && (which == nil || ok) {
			lines[k] = make([]netfilter.Line, 0, t.sizes[k])
		}
	}
	for e := range t.entries.AllDesired() {
		if list, ok := lines[e.chain]; ok {
			lines[e.chain] = append(list, e.rule)
		}
	}
	out := make(map[netfilter.ChainKey]netfilter.Chain, len(lines))
	for k, list := range lines {
		slices.SortFunc(list, netfilter.Line.Compare)
		rest, _ := t.chains.Desired(k)
		out[k] = netfilter.ChainOf(list).Then(rest)
	}
	return out
}

// lacking returns how many rows are desired and not known to be in place.
func (t *tables) lacking() int {
	return t.chains.Counts().Updates + t.entries.Counts().Updates + t.jumps.Counts().Updates
}

// clear wants no row.
func (t *tables) clear() {
	t.sizes = map[netfilter.ChainKey]int{}
	clearTable(t.chains)
	clearTable(t.entries)
	clearTable(t.jumps)
	t.nftables.LoadRows(nil) // a clean-up does not delete them
}

func clearTable[K comparable, V any](t *delta.Table[K, V]) {
	for k := range maps.Collect(t.AllDesired()) {
		t.DeleteDesired(k)
	}
}

// loadNFTables reads the tables of kube-proxy's nftables mode.
func (t *tables) loadNFTables(ctx context.Context) error {
	if _, err := t.nftables.Load(ctx); err != nil {
		return fmt.Errorf("look for kube-proxy's tables: %w", err)
	}
	return nil
}

// loadRules takes a listing as the rules in place, and returns how many rows drifted.
func (t *tables) loadRules(chains map[netfilter.ChainKey]netfilter.Chain, leads map[netfilter.JumpKey]netfilter.Jump) dataplane.Drift {
	found := map[entry]struct{}{}
	for k, c := range chains {
		switch {
		case !t.mine(k):
			delete(chains, k)
		case isDispatch(k):
			rest, entries := splitDispatch(k, c)
			chains[k] = rest
			for _, rule := range entries {
				found[entry{k, rule}] = struct{}{}
			}
		}
	}
	maps.DeleteFunc(leads, func(k netfilter.JumpKey, _ netfilter.Jump) bool {
		return !t.mine(netfilter.TargetOf(k))
	})
	return dataplane.Drift{"chains": t.chains.LoadRows(chains), "entries": t.entries.LoadRows(found), "jumps": t.jumps.LoadRows(leads)}
}

// mine reports whether a chain is this mode's, in a family that it serves.
func (t *tables) mine(k netfilter.ChainKey) bool {
	return netfilter.OfIPTables(k) && slices.Contains(t.families, k.Family)
}

// splitDispatch splits a dispatch chain into its entries and the rest behind them. A chain may have
// another form, because another mode has one of that name or a rule is there twice. Then all of it is
// rest, so that the chain is written again; its entries count all the same.
func splitDispatch(k netfilter.ChainKey, c netfilter.Chain) (rest netfilter.Chain, entries []netfilter.Line) {
	lines := slices.Collect(c.Lines())
	end := len(lines)
	for end > 0 && isRest(k, lines[end-1]) {
		end--
	}
	rest = netfilter.ChainOf(lines[end:])
	seen := make(map[netfilter.Line]struct{}, end)
	for _, l := range lines[:end] {
		if _, twice := seen[l]; twice || isRest(k, l) || !isEntry(k, l) {
			rest = c
			continue
		}
		seen[l] = struct{}{}
		entries = append(entries, l)
	}
	return rest, entries
}

// isRest reports whether a rule comes after the entries.
func isRest(k netfilter.ChainKey, l netfilter.Line) bool {
	return k.Table == "nat" && k.Name == chainServices && l.JumpsTo() == chainNodePorts
}

// isEntry reports whether a rule leads to a chain of a Service, or is a verdict of filter.
func isEntry(k netfilter.ChainKey, l netfilter.Line) bool {
	if k.Table == "filter" {
		return l.Rule(k.Family).Comment() != ""
	}
	return netfilter.OfService(entry{k, l}.target())
}

// jumpStore reads and writes the jumps to our chains.
type jumpStore struct {
	netfilter.JumpStore
	audit *auditor
}

// Write hands all changed jumps over at once.
func (s jumpStore) Write(ctx context.Context, changes []delta.Change[netfilter.JumpKey, netfilter.Jump]) []error {
	errs := s.JumpStore.Write(ctx, changes)
	for i, c := range changes {
		if at(errs, i) == nil {
			s.audit.touch(c.Key)
		}
	}
	return errs
}
