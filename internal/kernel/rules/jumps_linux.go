package rules

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// WriteJumps converges jumps in the given order. It lists each affected hook once, or all hooks if
// they are short, and runs one iptables-restore for each family (more only after a failure). An
// existing jump, anywhere in its hook, is neither moved nor doubled. A missing jump becomes the
// first rule, so of several additions the last comes out on top; [JumpChange.Behind] places it
// behind others, and [JumpChange.Last] at the end. A jump behind a rule that ends the way of every
// packet counts as missing ([Reach]) and is moved. Jumps to the same target with other arguments
// are removed after the new one is in. The result is nil when all is applied, else has one entry a
// change.
func (h *Handle) WriteJumps(ctx context.Context, changes []JumpChange) []error {
	errs := make([]error, len(changes))
	for i, c := range changes {
		errs[i] = h.refuse(ChainKey{Family: c.Key.Family, Table: c.Key.Table, Name: c.Key.Target})
	}
	b := &jumpBatch{h: h, changes: changes, errs: errs}
	for _, f := range h.families {
		b.write(ctx, f)
	}
	for i, c := range changes {
		if errs[i] != nil {
			errs[i] = fmt.Errorf("%s jump %s: %w", c.Op, c.Key, errs[i])
		}
	}
	return h.settle(errs)
}

// JumpsThere tells which jumps are missing, whatever their arguments, with one
// listing of each hook concerned. It may be called from any goroutine.
func (h *Handle) JumpsThere(ctx context.Context, keys []JumpKey) (missing []JumpKey, err error) {
	found := map[JumpKey]bool{}
	read := map[ChainKey]bool{}
	for _, key := range keys {
		hook := hookOf(key)
		if h.per[key.Family] == nil {
			return nil, fmt.Errorf("look for jump %s: family is not in use: %w", key, ErrUnsupported)
		}
		if !read[hook] {
			rules, err := h.readChain(ctx, hook)
			if err != nil {
				return nil, fmt.Errorf("look for jump %s: %w", key, err)
			}
			read[hook] = true
			for _, rule := range rules[:Reach(hook.Family, rules)] {
				if there, _, ok := jumpOf(hook, rule); ok {
					found[there] = true
				}
			}
		}
		if !found[key] {
			missing = append(missing, key)
		}
	}
	return missing, nil
}

// jumpBatch writes changes of jumps, a family at a time; errs is indexed by row.
type jumpBatch struct {
	h       *Handle
	changes []JumpChange
	errs    []error
	// stopped is an error that would hit every other attempt too: the rest would wait for the same
	// lock, one after the other.
	stopped error
}

// open are the rows of the family that did not fail.
func (b *jumpBatch) open(f Family) []int {
	var rows []int
	for row, c := range b.changes {
		if c.Key.Family == f && b.errs[row] == nil {
			rows = append(rows, row)
		}
	}
	return rows
}

func (b *jumpBatch) fail(rows []int, err error) {
	for _, row := range rows {
		b.errs[row] = err
	}
}

// write leaves out row after row until the rest passes, each time by what the
// hooks hold then: of several tables some may have been written already.
func (b *jumpBatch) write(ctx context.Context, f Family) {
	for rows := b.open(f); len(rows) > 0; rows = b.open(f) {
		guilty, err := b.attempt(ctx, rows)
		switch {
		case err == nil:
			return
		case len(guilty) > 0:
			b.fail(guilty, err)
		default:
			b.writeSingly(ctx, rows)
			return
		}
	}
}

// writeSingly finds the guilty among rows by writing one after the other.
func (b *jumpBatch) writeSingly(ctx context.Context, rows []int) {
	for _, row := range rows {
		if _, err := b.attempt(ctx, []int{row}); err != nil {
			b.errs[row] = err
		}
	}
}

// attempt reads the hooks, and writes the rows at once. Of a refusal it tells
// which rows are guilty, none if that is unknown.
func (b *jumpBatch) attempt(ctx context.Context, rows []int) (guilty []int, err error) {
	for races := 0; ; races++ {
		if b.stopped != nil {
			return rows, b.stopped
		}
		hooks, rest, err := b.read(ctx, rows)
		if err != nil {
			return rest, err
		}
		s := b.plan(hooks, rows)
		if s.text == "" {
			return nil, nil
		}
		f := b.changes[rows[0]].Key.Family
		if err = b.h.restore(ctx, f, s.text); err == nil {
			return nil, nil
		}
		switch {
		case outOfTime(ctx, err):
			b.stopped = err
			return rows, err
		case races < maxRaces && s.missedDeletion(err):
		default:
			return b.guilty(rows, s, err), err
		}
	}
}

// maxRaces bounds how often hooks are read again because another program deleted a rule first.
const maxRaces = 2

// missedDeletion reports whether a rule to delete does not exist any more.
func (s script) missedDeletion(err error) bool {
	return mayBeMissing(err) && strings.HasPrefix(s.line(lineOf(err)), "-D ")
}

// outOfTime errors would take the others as long: no process, no time left, the
// lock not had.
func outOfTime(ctx context.Context, err error) bool {
	var e *toolError
	return ctx.Err() != nil || errors.Is(err, ErrBusy) || !errors.As(err, &e) || e.status < 0
}

// read lists the hooks of the rows. If one cannot be read the rows that need it
// are guilty.
func (b *jumpBatch) read(ctx context.Context, rows []int) (hooks map[ChainKey][]string, guilty []int, err error) {
	if hooks, listed := b.list(ctx, rows); listed {
		return hooks, nil, nil
	}
	hooks = map[ChainKey][]string{}
	for _, row := range rows {
		hook := hookOf(b.changes[row].Key)
		if _, known := hooks[hook]; known {
			continue
		}
		if hooks[hook], err = b.h.readChain(ctx, hook); err == nil {
			continue
		}
		if outOfTime(ctx, err) {
			b.stopped = err
			return nil, rows, err
		}
		for _, row := range rows {
			if hookOf(b.changes[row].Key) == hook {
				guilty = append(guilty, row)
			}
		}
		return nil, guilty, err
	}
	return hooks, nil, nil
}

// smallListing is the size of a listing, in bytes, that is read as fast as one hook: a process
// takes some milliseconds to start.
const smallListing = 256 << 10

// list reads all hooks of the rows from one listing. It does not where that would take
// long, or not show what is there; the hooks tell then, or why they cannot be read.
func (b *jumpBatch) list(ctx context.Context, rows []int) (hooks map[ChainKey][]string, listed bool) {
	hooks, known := map[ChainKey][]string{}, Hooks()
	for _, row := range rows {
		hook := hookOf(b.changes[row].Key)
		if hooks[hook] = nil; !slices.Contains(known[hook.Table], hook.Name) {
			return nil, false // missing from a listing it might be empty, or not exist
		}
	}
	if len(hooks) <= FewHooks || b.h.listed.Load()+b.h.bytes.Load() > smallListing {
		return nil, false
	}
	f := b.changes[rows[0]].Key.Family
	out, tables, err := b.h.save(ctx, f)
	if err != nil || bytes.Contains(out, []byte(errIncompatible.Error())) {
		return nil, false
	}
	for _, t := range tables {
		for _, c := range t.Chains {
			hook := ChainKey{f, t.Name, c.Name}
			if _, asked := hooks[hook]; asked && c.Builtin() {
				hooks[hook] = c.Rules
			}
		}
	}
	return hooks, true
}

func (b *jumpBatch) plan(hooks map[ChainKey][]string, rows []int) script {
	p := newJumpPlan(hooks)
	for _, row := range rows {
		p.change(row, b.changes[row])
	}
	return p.tables.render()
}

// guilty are the row whose line was refused and those to a chain that the tool
// misses by name; a change that is written alone is guilty in any case.
func (b *jumpBatch) guilty(rows []int, s script, err error) []int {
	if row, known := s.refusedRow(err); known {
		return []int{row}
	}
	var e *toolError
	if len(rows) == 1 || !errors.As(err, &e) {
		return rows
	}
	var guilty []int
	name, table := missingChain(e.text), s.tableAt(faultyLine(e.text))
	for _, row := range rows {
		if key := b.changes[row].Key; key.Target == name && key.Table == table {
			guilty = append(guilty, row)
		}
	}
	return guilty
}
