package iptables

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/netfilter"
	"github.com/kube-ipvs/kube-ipvs/internal/delta"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
)

// Chains and entries are one write: a Service that comes is chains and the rule that
// leads there, and one process of iptables-restore carries out both.

// batch is what one write carries out.
type batch struct {
	chains  []delta.Change[netfilter.ChainKey, netfilter.Chain]
	entries []delta.Change[entry, struct{}]
	// whole has the text of dispatch chains that are written anew, with all entries.
	whole map[netfilter.ChainKey]netfilter.Chain
}

// writeGroup is the write of the tables of chains and entries. It deletes chains at once, in the
// write of the updates, unless a jump is to be deleted that may lead there: then it writes again
// after the jumps.
func (m *Mode) writeGroup(ctx context.Context, p delta.Pass, deletes bool) [2]delta.Outcome {
	if !deletes {
		m.hooked = m.jumps.Counts().Deletes > 0
		return m.write(ctx, p, !m.hooked)
	}
	if !m.hooked {
		return outcomes{}
	}
	return m.write(ctx, p, true)
}

// outcomes are those of chains and of entries.
type outcomes [2]delta.Outcome

func (o outcomes) plus(p outcomes) outcomes { return outcomes{o[0].Plus(p[0]), o[1].Plus(p[1])} }

// write carries out what is pending of chains and entries. Without removals chains that
// are to go stay, and what is in them.
//
// A chain that is written anew has rules for all Services, and is refused for one that
// leads nowhere. So what they lead to comes first then.
func (m *Mode) write(ctx context.Context, p delta.Pass, removals bool) outcomes {
	b := m.gather(p, removals)
	if len(b.whole) == 0 {
		return m.carryOut(ctx, b, p)
	}
	if m.deps.Rules.Backend() == rules.Legacy && b.replaces() {
		if out, done := m.atOnce(ctx, b, p); done {
			return out
		}
	}
	first, then := b.split()
	out := m.carryOut(ctx, first, p)
	if err := out[0].Err(); out[0].Failed == len(first.chains) && silent(err) {
		return out.plus(m.fail(then, err))
	}
	alone := m.leaveOut(&then)
	return out.plus(m.carryOut(ctx, then, p)).plus(m.carryOut(ctx, alone, p))
}

// replaces tells whether a batch can be written again when nobody knows how much of it
// was carried out: all of it is whole chains.
func (b batch) replaces() bool {
	return !slices.ContainsFunc(b.chains, func(c delta.Change[netfilter.ChainKey, netfilter.Chain]) bool { return c.Op == delta.Delete }) &&
		!slices.ContainsFunc(b.entries, func(c delta.Change[entry, struct{}]) bool { return b.lacks(c.Key.chain) })
}

// atOnce makes one write of what is two otherwise: for each, iptables-legacy-restore reads
// the whole table and writes it anew, which is most of a first load. It is not done if
// anything was refused; to find out what it was takes the two.
func (m *Mode) atOnce(ctx context.Context, b batch, p delta.Pass) (out outcomes, done bool) {
	w := m.forKernel(b, p)
	begun := time.Now()
	chainErrs, _ := m.deps.Rules.Write(ctx, w.chains, nil)
	took := time.Since(begun)
	if err := errors.Join(chainErrs...); err != nil && !silent(err) {
		return outcomes{{Took: took}}, false
	}
	out = m.recordAll(b, w, chainErrs, nil)
	out[0].Took = took
	return out, true
}

// split parts what Services have of their own from the chains that lead there, and from
// what nothing may lead to any more.
func (b batch) split() (first, then batch) {
	then.whole, then.entries = b.whole, b.entries
	for _, c := range b.chains {
		if c.Op == delta.Delete || isDispatch(c.Key) {
			then.chains = append(then.chains, c)
		} else {
			first.chains = append(first.chains, c)
		}
	}
	return first, then
}

// leaveOut takes new entries out of chains that are written anew if they lead to a chain
// that could not be made, for one such rule has the whole chain refused. They are returned
// to be tried one by one.
func (m *Mode) leaveOut(b *batch) (alone batch) {
	lost := map[entry]struct{}{}
	b.entries = slices.DeleteFunc(b.entries, func(c delta.Change[entry, struct{}]) bool {
		to := c.Key.target()
		if c.Op != delta.Add || !netfilter.OfService(to) || m.there(to) || b.lacks(c.Key.chain) {
			return false
		}
		lost[c.Key] = struct{}{}
		alone.entries = append(alone.entries, c)
		return true
	})
	if len(lost) == 0 {
		return alone
	}
	for k, all := range b.whole {
		b.whole[k] = netfilter.ChainOf(slices.DeleteFunc(slices.Collect(all.Lines()), func(l netfilter.Line) bool {
			return has(lost, entry{k, l})
		}))
	}
	return alone
}

// silent tells whether the tools did not come to work at all: to ask again would take as
// long again, and the loop is needed elsewhere.
func silent(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, rules.ErrBusy)
}

// fail gives up a batch that stands on another that failed.
func (m *Mode) fail(b batch, err error) outcomes {
	return outcomes{
		record(m, m.chains, b.chains, slices.Repeat([]error{err}, len(b.chains))),
		record(m, m.entries, b.entries, slices.Repeat([]error{err}, len(b.entries))),
	}
}

// write is a batch in the words of the kernel room.
type write struct {
	chains []rules.ChainChange
	edits  []rules.RuleChange
	// edited are the entries of edits; the others come and go with their chain.
	edited []delta.Change[entry, struct{}]
	with   map[netfilter.ChainKey][]delta.Change[entry, struct{}]
}

func (m *Mode) forKernel(b batch, p delta.Pass) write {
	w := write{chains: make([]rules.ChainChange, len(b.chains)), with: map[netfilter.ChainKey][]delta.Change[entry, struct{}]{}}
	for i, c := range b.chains {
		if all, ok := b.whole[c.Key]; ok {
			c.Value = all
		}
		w.chains[i] = netfilter.ChainChange(c)
	}
	for _, c := range b.entries {
		if !b.lacks(c.Key.chain) || m.chains.Deleting(c.Key.chain, p.Orphans) {
			w.with[c.Key.chain] = append(w.with[c.Key.chain], c)
			continue
		}
		w.edits, w.edited = append(w.edits, netfilter.LineChange(c.Op, c.Key.chain, c.Key.rule)), append(w.edited, c)
	}
	return w
}

// carryOut makes one write of a batch.
func (m *Mode) carryOut(ctx context.Context, b batch, p delta.Pass) outcomes {
	if len(b.chains) == 0 && len(b.entries) == 0 {
		return outcomes{}
	}
	w := m.forKernel(b, p)
	if len(w.chains) == 0 && len(w.edits) == 0 {
		return outcomes{} // what is left goes with its chain, later
	}
	begun := time.Now()
	chainErrs, editErrs := m.deps.Rules.Write(ctx, w.chains, w.edits)
	took := time.Since(begun)
	out := m.recordAll(b, w, chainErrs, editErrs)
	out[0].Took = took // that of its entries, too: they are lines of one write
	return out
}

// recordAll notes what became of a batch.
func (m *Mode) recordAll(b batch, w write, chainErrs, editErrs []error) outcomes {
	out := outcomes{record(m, m.chains, b.chains, chainErrs), record(m, m.entries, w.edited, editErrs)}
	for i, c := range b.chains {
		with := w.with[c.Key]
		out[1] = out[1].Plus(record(m, m.entries, with, slices.Repeat([]error{at(chainErrs, i)}, len(with))))
	}
	return out
}

// gather collects what is pending and decides which dispatch chains are written anew:
// those that are not there or end differently, and those of which so much changes that
// single rules would cost more.
func (m *Mode) gather(p delta.Pass, removals bool) batch {
	b := batch{
		chains:  m.chains.Updates(netfilter.ChainKey.Compare, p),
		entries: append(m.entries.Updates(compareEntries, p), m.entries.Deletes(compareEntries, p)...),
		whole:   map[netfilter.ChainKey]netfilter.Chain{},
	}
	edits := map[netfilter.ChainKey]int{}
	for _, c := range b.entries {
		edits[c.Key.chain]++
	}
	anew := map[netfilter.ChainKey]struct{}{}
	for _, c := range b.chains {
		if isDispatch(c.Key) {
			anew[c.Key] = struct{}{}
		}
	}
	for k, n := range edits {
		want, wanted := m.chains.Desired(k)
		if _, is := anew[k]; is || !wanted || n <= fewEdits || n <= m.sizes[k]/4 {
			continue
		}
		anew[k] = struct{}{}
		b.chains = append(b.chains, delta.Change[netfilter.ChainKey, netfilter.Chain]{Op: delta.Update, Key: k, Value: want})
	}
	if len(anew) > 0 {
		m.dispatch(&b, anew, p)
	}
	b.entries = slices.DeleteFunc(b.entries, func(c delta.Change[entry, struct{}]) bool {
		return b.lacks(c.Key.chain) && (!m.there(c.Key.chain) || m.doubt && c.Op == delta.Add && m.entries.MayBeThere(c.Key))
	})
	if removals {
		b.chains = append(b.chains, m.chains.Deletes(netfilter.ChainKey.Compare, p)...)
	}
	return b
}

// fewEdits are always made one by one.
const fewEdits = 64

// lacks tells whether a write does not make a chain.
func (b batch) lacks(k netfilter.ChainKey) bool {
	_, made := b.whole[k]
	return !made
}

// dispatch gathers, for chains that are written anew, all that is pending of them, what
// rests included, and their texts. Entries that stay although nobody wants them, since
// they may belong to an input that could not be read, stay in them.
func (m *Mode) dispatch(b *batch, anew map[netfilter.ChainKey]struct{}, p delta.Pass) {
	all := delta.Pass{Orphans: p.Orphans, Retry: true}
	b.entries = slices.DeleteFunc(b.entries, func(c delta.Change[entry, struct{}]) bool { return has(anew, c.Key.chain) })
	for _, c := range append(m.entries.Updates(compareEntries, all), m.entries.Deletes(compareEntries, all)...) {
		if has(anew, c.Key.chain) {
			b.entries = append(b.entries, c)
		}
	}
	kept := map[netfilter.ChainKey][]netfilter.Line{}
	if !p.Orphans {
		for e := range m.entries.AllDeletes() {
			if has(anew, e.chain) && !m.entries.Deleting(e, false) {
				kept[e.chain] = append(kept[e.chain], e.rule)
			}
		}
	}
	b.whole = m.dispatchTexts(anew)
	for k, list := range kept {
		slices.SortFunc(list, netfilter.Line.Compare)
		b.whole[k] = netfilter.ChainOf(list).Then(b.whole[k])
	}
}

func has[K comparable](set map[K]struct{}, k K) bool {
	_, ok := set[k]
	return ok
}

// dispatchTexts are the wanted dispatch chains with all their entries; nil is all chains.
func (m *Mode) dispatchTexts(which map[netfilter.ChainKey]struct{}) map[netfilter.ChainKey]netfilter.Chain {
	lines := map[netfilter.ChainKey][]netfilter.Line{}
	for k := range m.chains.AllDesired() {
		if _, ok := which[k]; isDispatch(k) && (which == nil || ok) {
			lines[k] = make([]netfilter.Line, 0, m.sizes[k])
		}
	}
	for e := range m.entries.AllDesired() {
		if list, ok := lines[e.chain]; ok {
			lines[e.chain] = append(list, e.rule)
		}
	}
	out := make(map[netfilter.ChainKey]netfilter.Chain, len(lines))
	for k, list := range lines {
		slices.SortFunc(list, netfilter.Line.Compare)
		rest, _ := m.chains.Desired(k)
		out[k] = netfilter.ChainOf(list).Then(rest)
	}
	return out
}

func at(errs []error, i int) error {
	if i < len(errs) {
		return errs[i]
	}
	return nil
}

// record notes what became of rows of one table.
func record[K comparable, V any](m *Mode, t *delta.Table[K, V], changes []delta.Change[K, V], errs []error) delta.Outcome {
	for i, c := range changes {
		if err := at(errs, i); err != nil {
			m.doubt = m.doubt || uncertain(err)
		} else {
			m.audit.touch(c.Key)
		}
	}
	return t.Record(changes, errs)
}

// uncertain tells whether a failed write may have been carried out all the same, or
// failed for what is not as it is believed to be.
func uncertain(err error) bool { return !errors.Is(err, rules.ErrUnsupported) }
