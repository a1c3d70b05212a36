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

// groupWriter writes the tables of chains and entries in one write. A new Service is chains and the rule
// that leads to them, and one process of iptables-restore writes both.
type groupWriter struct {
	rules  Rules
	tables *tables
	audit  *auditor
	// hooked: the pass in progress deletes jumps, and chains that they may lead to after them.
	hooked bool
	// doubt: a write may or may not have been carried out, so the rules are read before the next.
	doubt bool
}

// batch is what one write carries out.
type batch struct {
	chains  []delta.Change[netfilter.ChainKey, netfilter.Chain]
	entries []delta.Change[entry, struct{}]
	// fullRewrites has the dispatch chains that are replaced as a whole, with all entries.
	fullRewrites map[netfilter.ChainKey]netfilter.Chain
}

// writeGroup writes both tables. It deletes chains at once, in the write of the updates, unless a jump is
// to be deleted that may lead there: then it writes again after the jumps.
func (w *groupWriter) writeGroup(ctx context.Context, p delta.Pass, deletes bool) [2]delta.Outcome {
	if !deletes {
		w.hooked = w.tables.jumps.Counts().Deletes > 0
		return w.write(ctx, p, !w.hooked)
	}
	if !w.hooked {
		return outcomes{}
	}
	return w.write(ctx, p, true)
}

// outcomes are those of chains and of entries.
type outcomes [2]delta.Outcome

func (o outcomes) plus(p outcomes) outcomes { return outcomes{o[0].Plus(p[0]), o[1].Plus(p[1])} }

// write carries out the pending changes of chains and entries. Without removals it deletes no
// chain, and nothing in one that is to be deleted.
//
// A dispatch chain that is replaced has rules for all Services, and the kernel refuses it for one
// rule that leads to a missing chain. So the chains of Services are written before it.
func (w *groupWriter) write(ctx context.Context, p delta.Pass, removals bool) outcomes {
	b := w.gather(p, removals)
	if len(b.fullRewrites) == 0 {
		return w.carryOut(ctx, b, p)
	}
	if w.rules.Backend() == rules.Legacy && b.replaces() {
		if out, done := w.atOnce(ctx, b, p); done {
			return out
		}
	}
	first, then := b.split()
	out := w.carryOut(ctx, first, p)
	if err := out[0].Err(); out[0].Failed == len(first.chains) && silent(err) {
		return out.plus(w.fail(then, err))
	}
	alone := w.excludeBroken(&then)
	return out.plus(w.carryOut(ctx, then, p)).plus(w.carryOut(ctx, alone, p))
}

// replaces reports whether a batch can be written again when it is unknown how much of it the
// tools carried out: it replaces whole chains only.
func (b batch) replaces() bool {
	return !slices.ContainsFunc(b.chains, func(c delta.Change[netfilter.ChainKey, netfilter.Chain]) bool { return c.Op == delta.Delete }) &&
		!slices.ContainsFunc(b.entries, func(c delta.Change[entry, struct{}]) bool { return b.omits(c.Key.chain) })
}

// atOnce carries out in one write what is two writes otherwise: for each, iptables-legacy-restore
// reads and replaces the whole table, which is most of a first load. done is false if the kernel
// refused a row; only two writes find out which.
func (w *groupWriter) atOnce(ctx context.Context, b batch, p delta.Pass) (out outcomes, done bool) {
	k := w.forKernel(b, p)
	begun := time.Now()
	chainErrs, _ := w.rules.Write(ctx, k.chains, nil)
	took := time.Since(begun)
	if err := errors.Join(chainErrs...); err != nil && !silent(err) {
		return outcomes{{Took: took}}, false
	}
	out = w.recordAll(b, k, chainErrs, nil)
	out[0].Took = took
	return out, true
}

// split separates the chains of Services from the dispatch chains that lead to them, and from
// chains that are deleted, to which no rule may lead then.
func (b batch) split() (first, then batch) {
	then.fullRewrites, then.entries = b.fullRewrites, b.entries
	for _, c := range b.chains {
		if c.Op == delta.Delete || isDispatch(c.Key) {
			then.chains = append(then.chains, c)
		} else {
			first.chains = append(first.chains, c)
		}
	}
	return first, then
}

// excludeBroken takes new entries out of replaced chains if they lead to a chain that could not
// be made: the kernel refuses the whole chain for one such rule. It returns them as a batch of
// single rules.
func (w *groupWriter) excludeBroken(b *batch) (alone batch) {
	lost := map[entry]struct{}{}
	b.entries = slices.DeleteFunc(b.entries, func(c delta.Change[entry, struct{}]) bool {
		to := c.Key.target()
		if c.Op != delta.Add || !netfilter.OfService(to) || w.tables.hasChain(to) || b.omits(c.Key.chain) {
			return false
		}
		lost[c.Key] = struct{}{}
		alone.entries = append(alone.entries, c)
		return true
	})
	if len(lost) == 0 {
		return alone
	}
	for k, all := range b.fullRewrites {
		b.fullRewrites[k] = netfilter.ChainOf(slices.DeleteFunc(slices.Collect(all.Lines()), func(l netfilter.Line) bool {
			return has(lost, entry{k, l})
		}))
	}
	return alone
}

// silent reports whether the tools did nothing before their deadline. Another call would take as
// long, and the loop has other work.
func silent(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, rules.ErrBusy)
}

// fail records a batch as failed because another one that it depends on failed.
func (w *groupWriter) fail(b batch, err error) outcomes {
	return outcomes{
		record(w, w.tables.chains, b.chains, slices.Repeat([]error{err}, len(b.chains))),
		record(w, w.tables.entries, b.entries, slices.Repeat([]error{err}, len(b.entries))),
	}
}

// write is a batch as kernel/rules takes it.
type write struct {
	chains []rules.ChainChange
	edits  []rules.RuleChange
	// edited are the entries of edits; with has the entries that are written with their chain.
	edited []delta.Change[entry, struct{}]
	with   map[netfilter.ChainKey][]delta.Change[entry, struct{}]
}

func (w *groupWriter) forKernel(b batch, p delta.Pass) write {
	k := write{chains: make([]rules.ChainChange, len(b.chains)), with: map[netfilter.ChainKey][]delta.Change[entry, struct{}]{}}
	for i, c := range b.chains {
		if all, ok := b.fullRewrites[c.Key]; ok {
			c.Value = all
		}
		k.chains[i] = netfilter.ChainChange(c)
	}
	for _, c := range b.entries {
		if !b.omits(c.Key.chain) || w.tables.chains.Deleting(c.Key.chain, p.Orphans) {
			k.with[c.Key.chain] = append(k.with[c.Key.chain], c)
			continue
		}
		k.edits, k.edited = append(k.edits, netfilter.LineChange(c.Op, c.Key.chain, c.Key.rule)), append(k.edited, c)
	}
	return k
}

// carryOut writes a batch in one call.
func (w *groupWriter) carryOut(ctx context.Context, b batch, p delta.Pass) outcomes {
	if len(b.chains) == 0 && len(b.entries) == 0 {
		return outcomes{}
	}
	k := w.forKernel(b, p)
	if len(k.chains) == 0 && len(k.edits) == 0 {
		return outcomes{} // the remaining entries are deleted with their chain, later
	}
	begun := time.Now()
	chainErrs, editErrs := w.rules.Write(ctx, k.chains, k.edits)
	took := time.Since(begun)
	out := w.recordAll(b, k, chainErrs, editErrs)
	out[0].Took = took // the entries are lines of the same write
	return out
}

// recordAll records the results of a batch.
func (w *groupWriter) recordAll(b batch, k write, chainErrs, editErrs []error) outcomes {
	out := outcomes{record(w, w.tables.chains, b.chains, chainErrs), record(w, w.tables.entries, k.edited, editErrs)}
	for i, c := range b.chains {
		with := k.with[c.Key]
		out[1] = out[1].Plus(record(w, w.tables.entries, with, slices.Repeat([]error{at(chainErrs, i)}, len(with))))
	}
	return out
}

// gather collects the pending changes and decides which dispatch chains are replaced: missing ones,
// those with another end, and those with so many changes that single rules would cost more.
func (w *groupWriter) gather(p delta.Pass, removals bool) batch {
	b := batch{
		chains:       w.tables.chains.Updates(netfilter.ChainKey.Compare, p),
		entries:      append(w.tables.entries.Updates(compareEntries, p), w.tables.entries.Deletes(compareEntries, p)...),
		fullRewrites: map[netfilter.ChainKey]netfilter.Chain{},
	}
	edits := map[netfilter.ChainKey]int{}
	for _, c := range b.entries {
		edits[c.Key.chain]++
	}
	replaced := map[netfilter.ChainKey]struct{}{}
	for _, c := range b.chains {
		if isDispatch(c.Key) {
			replaced[c.Key] = struct{}{}
		}
	}
	for k, n := range edits {
		want, wanted := w.tables.chains.Desired(k)
		if _, is := replaced[k]; is || !wanted || n <= fewEdits || n <= w.tables.sizes[k]/4 {
			continue
		}
		replaced[k] = struct{}{}
		b.chains = append(b.chains, delta.Change[netfilter.ChainKey, netfilter.Chain]{Op: delta.Update, Key: k, Value: want})
	}
	if len(replaced) > 0 {
		w.dispatch(&b, replaced, p)
	}
	b.entries = slices.DeleteFunc(b.entries, func(c delta.Change[entry, struct{}]) bool {
		return b.omits(c.Key.chain) && (!w.tables.hasChain(c.Key.chain) || w.doubt && c.Op == delta.Add && w.tables.entries.MayBeThere(c.Key))
	})
	if removals {
		b.chains = append(b.chains, w.tables.chains.Deletes(netfilter.ChainKey.Compare, p)...)
	}
	return b
}

// fewEdits is the number of changed rules up to which a chain is never replaced.
const fewEdits = 64

// omits reports whether a batch does not replace a chain.
func (b batch) omits(k netfilter.ChainKey) bool {
	_, made := b.fullRewrites[k]
	return !made
}

// dispatch collects, for chains that are replaced, all pending entries, those that back off
// included, and the content of the chains. Orphaned entries stay in them while a source could not
// be read: they may belong to it.
func (w *groupWriter) dispatch(b *batch, replaced map[netfilter.ChainKey]struct{}, p delta.Pass) {
	all := delta.Pass{Orphans: p.Orphans, Retry: true}
	b.entries = slices.DeleteFunc(b.entries, func(c delta.Change[entry, struct{}]) bool { return has(replaced, c.Key.chain) })
	for _, c := range append(w.tables.entries.Updates(compareEntries, all), w.tables.entries.Deletes(compareEntries, all)...) {
		if has(replaced, c.Key.chain) {
			b.entries = append(b.entries, c)
		}
	}
	kept := map[netfilter.ChainKey][]netfilter.Line{}
	if !p.Orphans {
		for e := range w.tables.entries.AllDeletes() {
			if has(replaced, e.chain) && !w.tables.entries.Deleting(e, false) {
				kept[e.chain] = append(kept[e.chain], e.rule)
			}
		}
	}
	b.fullRewrites = w.tables.desiredDispatch(replaced)
	for k, list := range kept {
		slices.SortFunc(list, netfilter.Line.Compare)
		b.fullRewrites[k] = netfilter.ChainOf(list).Then(b.fullRewrites[k])
	}
}

// record records the results of rows of one table.
func record[K comparable, V any](w *groupWriter, t *delta.Table[K, V], changes []delta.Change[K, V], errs []error) delta.Outcome {
	for i, c := range changes {
		if err := at(errs, i); err != nil {
			w.doubt = w.doubt || uncertain(err)
		} else {
			w.audit.touch(c.Key)
		}
	}
	return t.Record(changes, errs)
}

// uncertain reports whether a failed write may have been carried out, or failed because the
// kernel differs from the rows in memory.
func uncertain(err error) bool { return !errors.Is(err, rules.ErrUnsupported) }
