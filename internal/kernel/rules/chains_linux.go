package rules

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// WriteChains converges the chains to their changes, one iptables-restore a
// family for all tables (more only for a load beyond 10,000 lines or after a
// failure). The result is nil when all is applied, else has one entry a
// change. A chain the kernel refuses fails alone; chains that jump to one
// that therefore never came to be fail with ErrNotExist.
func (h *Handle) WriteChains(ctx context.Context, changes []ChainChange) []error {
	errs := make([]error, len(changes))
	for i, c := range changes {
		errs[i] = h.refuse(c.Key)
	}
	for _, f := range h.families {
		if steps := plan(changes, f); len(steps) > 0 {
			b := &chainBatch{h: h, family: f, changes: changes, errs: errs}
			b.write(ctx, steps)
		}
	}
	for i, c := range changes {
		if errs[i] != nil {
			errs[i] = fmt.Errorf("%s chain %s: %w", c.Op, c.Key, errs[i])
		}
	}
	return h.settle(errs)
}

// refuse guards families that New left out and chains that are not ours; a
// built-in chain would be emptied by its declaration.
func (h *Handle) refuse(k ChainKey) error {
	if h.per[k.Family] == nil {
		return fmt.Errorf("family %s is not in use: %w", k.Family, ErrUnsupported)
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

// chainBatch writes the changes of one family; errs is shared with the
// other families' batches and indexed by row.
type chainBatch struct {
	h       *Handle
	family  Family
	changes []ChainChange
	errs    []error
	halved  bool // a piece was split without knowing the guilty row
	// stopped is what would hit every other attempt too.
	stopped error
}

// write goes on only while there is hope: chains that are emptied in one piece are filled
// or removed in another.
func (b *chainBatch) write(ctx context.Context, steps []step) {
	for _, piece := range cut(b.changes, steps, maxLines) {
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

// apply writes one piece, leaving out row after row until the rest passes.
func (b *chainBatch) apply(ctx context.Context, steps []step) {
	for {
		steps = slices.DeleteFunc(slices.Clone(steps), func(s step) bool { return b.errs[s.row] != nil })
		if len(steps) == 0 {
			return
		}
		text, owners := render(b.changes, steps)
		err := b.restore(ctx, text)
		if err == nil {
			return
		}
		rows := rowsOf(steps)
		guilty, known := blame(err, owners)
		err = explain(err, text)
		switch {
		case hopeless(ctx, err):
			b.fail(rows, err)
			b.stopped = err
		case tooLong(err) && len(steps) > 1:
			sorted := calleesFirst(b.changes, steps)
			b.apply(ctx, sorted[:len(sorted)/2])
			b.apply(ctx, sorted[len(sorted)/2:])
			return
		case known:
			b.fail([]int{guilty}, err)
		case len(rows) == 1:
			b.fail(rows, err)
		default:
			b.halve(ctx, steps, rows)
			return
		}
	}
}

// halve narrows a refusal down that names no line, as legacy's at COMMIT.
func (b *chainBatch) halve(ctx context.Context, steps []step, rows []int) {
	b.halved = true
	first := rows[:len(rows)/2]
	var one, two []step
	for _, s := range steps {
		if slices.Contains(first, s.row) {
			one = append(one, s)
		} else {
			two = append(two, s)
		}
	}
	b.apply(ctx, one)
	b.apply(ctx, two)
}

// retryMissing gives rows another chance that failed only because halving
// put them before the chain they jump to, or before the chain that jumps to
// the one they delete, as long as that helps.
func (b *chainBatch) retryMissing(ctx context.Context, steps []step) {
	for {
		var again []step
		for _, s := range steps {
			if err := b.errs[s.row]; errors.Is(err, ErrNotExist) || errors.Is(err, ErrBusy) && !hopeless(ctx, err) {
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

func (b *chainBatch) fail(rows []int, err error) {
	for _, row := range rows {
		b.errs[row] = err
	}
}

func (b *chainBatch) restore(ctx context.Context, text string) error {
	b.h.restores.Add(1)
	t := b.h.per[b.family]
	_, err := run(ctx, b.h.opts.writeTimeout(text), strings.NewReader(text), t.restore, "--noflush", waitArg(b.h.opts))
	if err != nil && ctx.Err() == nil { // told to stop, we killed it: no failure
		t.failures.Add(1)
	}
	return err
}

// rowsOf lists each row once, ascending.
func rowsOf(steps []step) []int {
	rows := make([]int, 0, len(steps))
	for _, s := range steps {
		rows = append(rows, s.row)
	}
	slices.Sort(rows)
	return slices.Compact(rows)
}

// blame finds the change whose line the tool complains about.
func blame(err error, owners []int) (row int, known bool) {
	var e *toolError
	if !errors.As(err, &e) {
		return 0, false
	}
	line := faultyLine(e.text)
	if line < 1 || line > len(owners) || owners[line-1] == noRow {
		return 0, false
	}
	return owners[line-1], true
}

// explain adds what legacy leaves out: it fails a removal without a reason,
// and for a chain that is ours and empty only a reference is left.
func explain(err error, text string) error {
	var e *toolError
	if !errors.As(err, &e) || e.kind != nil {
		return err
	}
	lines := strings.Split(text, "\n")
	if n := faultyLine(e.text); n > 0 && n <= len(lines) && strings.HasPrefix(lines[n-1], "-X ") {
		return fmt.Errorf("still referenced: %w: %w", ErrBusy, err)
	}
	return err
}

// tooLong: in a user namespace nft may not enlarge its socket buffer, so
// less fits into one batch than maxLines.
func tooLong(err error) bool { return strings.Contains(err.Error(), "Message too long") }

// hopeless errors would hit every other attempt too: no process, no time
// left, the lock not had, the table not there.
func hopeless(ctx context.Context, err error) bool {
	var e *toolError
	if ctx.Err() != nil || !errors.As(err, &e) || e.status < 0 {
		return true
	}
	return strings.Contains(e.text, lockMessage) || strings.Contains(e.text, "can't initialize")
}
