package rules

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// WriteChains is [Handle.Write] without rules.
func (h *Handle) WriteChains(ctx context.Context, chains []ChainChange) []error {
	errs, _ := h.Write(ctx, chains, nil)
	return errs
}

// Write converges the chains to their changes, and adds or deletes single rules in chains whose
// other rules stay. It runs one iptables-restore for each family and all tables (more only for a
// load beyond 10,000 lines with nft, 500,000 with legacy, or after a failure). Each result is nil
// when all of it is applied, else has one entry a change.
//
// A row that the kernel refuses fails alone. A jump to a chain that is missing, for this or another
// reason, fails with [ErrNotExist], and so does a rule for a missing chain. A rule to delete that
// is not there is deleted. Rules of a chain that the same call writes as a whole are refused, with
// [ErrExist]. Of several rules added to one chain the last comes out on top. A row that failed by a
// timeout or a lock is of unknown state. The chain must be read before a rule is added again, or
// the rule may be there twice.
func (h *Handle) Write(ctx context.Context, chains []ChainChange, rules []RuleChange) (chainErrs, ruleErrs []error) {
	c := changes{chains, rules}
	errs := h.checked(c)
	for _, f := range h.families {
		if steps := c.plan(f); len(steps) > 0 {
			b := &batch{h: h, family: f, changes: c, errs: errs, done: map[int]bool{}, looked: map[ChainKey]bool{}}
			b.write(ctx, steps)
		}
	}
	chainErrs, ruleErrs = errs[:len(chains)], errs[len(chains):]
	for i, change := range chains {
		if chainErrs[i] != nil {
			chainErrs[i] = fmt.Errorf("%s chain %s: %w", change.Op, change.Key, chainErrs[i])
		}
	}
	for i, change := range rules {
		if ruleErrs[i] != nil {
			ruleErrs[i] = fmt.Errorf("%s rule of chain %s: %w", change.Op, change.Chain, ruleErrs[i])
		}
	}
	return h.settle(chainErrs), h.settle(ruleErrs)
}

// checked has the errors of rows that are never handed to a tool.
func (h *Handle) checked(c changes) []error {
	errs := make([]error, len(c.chains)+len(c.rules))
	whole := make(map[ChainKey]bool, len(c.chains))
	for row, change := range c.chains {
		whole[change.Key] = true
		errs[row] = h.refuse(change.Key)
	}
	for i, change := range c.rules {
		row := len(c.chains) + i
		if errs[row] = h.refuse(change.Chain); errs[row] == nil {
			errs[row] = change.check()
		}
		if errs[row] == nil && whole[change.Chain] {
			errs[row] = fmt.Errorf("chain is written whole in the same call: %w", ErrExist)
		}
	}
	return errs
}

// refuse guards families that New left out and chains that are not ours; a
// built-in chain would be emptied by its declaration.
func (h *Handle) refuse(k ChainKey) error {
	if h.per[k.Family] == nil {
		return fmt.Errorf("family %s is not in use: %w", k.Family.Table(), ErrUnsupported)
	}
	if !h.opts.Owned(k) {
		return fmt.Errorf("chain is not ours: %w", ErrUnsupported)
	}
	return nil
}

// settle counts the applied rows and drops an all-nil result.
func (h *Handle) settle(errs []error) []error {
	failed := 0
	for _, err := range errs {
		if err != nil {
			failed++
		}
	}
	h.rows.Add(uint64(len(errs) - failed))
	if failed == 0 {
		return nil
	}
	return errs
}

// batch writes the changes of one family; errs is shared with the other
// families' batches and indexed by row.
type batch struct {
	h      *Handle
	family Family
	changes
	errs   []error
	done   map[int]bool      // rows of rules that are not to be written any more
	looked map[ChainKey]bool // chains that were listed after a refusal
	halved bool              // a piece was split without knowing the guilty row
	// stopped is an error that would hit every other attempt too.
	stopped error
}

// write repeats as long as that helps: chains that are emptied in one piece are filled or removed
// in another.
func (b *batch) write(ctx context.Context, steps []step) {
	for _, piece := range b.cut(steps, b.h.backend.maxLines()) {
		if b.stopped != nil {
			b.fail(rowsOf(piece), b.stopped)
			continue
		}
		b.apply(ctx, piece)
	}
	if b.halved {
		b.retryMissing(ctx, steps)
	}
}

// open leaves out rows that failed or are done.
func (b *batch) open(steps []step) []step {
	return slices.DeleteFunc(slices.Clone(steps), func(s step) bool { return b.errs[s.row] != nil || b.done[s.row] })
}

// apply writes one piece, leaving out row after row until the rest passes.
func (b *batch) apply(ctx context.Context, steps []step) {
	for steps = b.open(steps); len(steps) > 0; steps = b.open(steps) {
		s := b.render(steps)
		err := b.restore(ctx, s.text)
		if err == nil {
			return
		}
		if err = explain(err, s); hopeless(ctx, err) {
			b.fail(rowsOf(steps), err)
			b.stopped = err
			return
		}
		steps = b.uncommitted(ctx, steps, s, err)
		if !b.leaveOut(ctx, steps, s, err) {
			b.split(ctx, steps, err)
			return
		}
	}
}

// leaveOut finds rows to write no more, for they are guilty or need no writing.
func (b *batch) leaveOut(ctx context.Context, steps []step, s script, err error) bool {
	if tooLong(err) {
		return false
	}
	guilty, known := s.refusedRow(err)
	if b.leaveOutMissing(ctx, steps, guilty, known, err) {
		return true
	}
	rows := b.suspectRows(steps, s, err)
	if known {
		rows = append(rows, guilty)
	}
	b.fail(rows, err)
	return len(rows) > 0
}

// split narrows a refusal down that names no line, as legacy's at COMMIT.
func (b *batch) split(ctx context.Context, steps []step, err error) {
	steps = b.calleesFirst(b.open(steps))
	rows := rowsOf(steps)
	switch {
	case tooLong(err) && len(steps) > 1:
		b.apply(ctx, steps[:len(steps)/2])
		b.apply(ctx, steps[len(steps)/2:])
	case len(rows) <= 1:
		b.fail(rows, err)
	default:
		b.halve(ctx, steps, rows)
	}
}

func (b *batch) halve(ctx context.Context, steps []step, rows []int) {
	b.halved = true
	first := make(map[int]bool, len(rows)/2)
	for _, row := range rows[:len(rows)/2] {
		first[row] = true
	}
	var one, two []step
	for _, s := range steps {
		if first[s.row] {
			one = append(one, s)
		} else {
			two = append(two, s)
		}
	}
	b.apply(ctx, one)
	b.apply(ctx, two)
}

// retryMissing tries rows again that failed only because a batch was split. The split put them
// before the chain they jump to, or before the deletion of the jump to the chain they delete. It
// repeats this as long as that helps.
func (b *batch) retryMissing(ctx context.Context, steps []step) {
	for b.stopped == nil {
		var again []step
		for _, s := range steps {
			err := b.errs[s.row]
			if !b.done[s.row] && (errors.Is(err, ErrNotExist) || errors.Is(err, ErrBusy) && !hopeless(ctx, err)) {
				again = append(again, s)
			}
		}
		rows := rowsOf(again)
		for _, row := range rows {
			b.errs[row] = nil
		}
		b.apply(ctx, again)
		if !slices.ContainsFunc(rows, func(row int) bool { return b.errs[row] == nil }) {
			return
		}
	}
}

func (b *batch) fail(rows []int, err error) {
	for _, row := range rows {
		b.errs[row] = err
	}
}

func (b *batch) restore(ctx context.Context, text string) error {
	return b.h.restore(ctx, b.family, text)
}

// restore runs iptables-restore --noflush once.
func (h *Handle) restore(ctx context.Context, f Family, text string) error {
	t := h.per[f]
	if err := h.free(t.restore); err != nil {
		return err
	}
	h.restores.Add(1)
	h.bytes.Add(uint64(len(text)))
	_, err := h.runLocked(ctx, h.opts.writeTimeout(h.backend, text), strings.NewReader(text), t.restore, "--noflush", waitArg(h.opts))
	if err != nil && ctx.Err() == nil { // told to stop, we killed it: no failure
		t.failures.Add(1)
	}
	return err
}

// rowsOf lists each row once, in the order of their first steps.
func rowsOf(steps []step) []int {
	rows := make([]int, 0, len(steps))
	seen := make(map[int]bool, len(steps))
	for _, s := range steps {
		if !seen[s.row] {
			seen[s.row] = true
			rows = append(rows, s.row)
		}
	}
	return rows
}
