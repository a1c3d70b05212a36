package vserver

import (
	"context"
	"fmt"
	"slices"
)

// WriteServers applies changes in order, in as few system calls as they fit.
// The errors are aligned with the changes and nil where the row is as wanted;
// a nil slice means that all are. A key appears at most once in a batch.
func (h *Handle) WriteServers(ctx context.Context, changes []ServerChange) []error {
	return write(ctx, h, changes)
}

// WriteDestinations is WriteServers for destinations. Add and Update of a
// destination whose server is missing fail with ErrNotExist.
func (h *Handle) WriteDestinations(ctx context.Context, changes []DestinationChange) []error {
	return write(ctx, h, changes)
}

// passes bounds convergence: the operation, its opposite after an answer of "exists" or "missing",
// and one repetition if another program wrote the row in between.
const passes = 3

// row is a change that is still to be made, with the operation to try.
type row struct {
	index int
	op    Op
}

// batch is one call of write: the changes, their errors so far, nil while there
// are none, and what the next pass has to repeat.
type batch[C change[C]] struct {
	handle  *Handle
	changes []C
	errs    []error
	again   []row
}

func write[C change[C]](ctx context.Context, h *Handle, changes []C) []error {
	b := &batch[C]{handle: h, changes: changes}
	todo := b.admit()
	for pass := 1; len(todo) > 0; pass++ {
		b.again = nil
		if err := b.run(ctx, todo, pass == passes); err != nil {
			b.failAll(b.again, err)
			break
		}
		todo = b.again
	}
	return b.errs
}

// admit keeps rows that cannot be expressed away from the kernel.
func (b *batch[C]) admit() []row {
	todo := slices.Grow(b.handle.todo[:0], len(b.changes))
	for i, c := range b.changes {
		if err := c.Check(); err != nil {
			b.fail(i, err)
			continue
		}
		todo = append(todo, row{index: i, op: c.wanted()})
	}
	b.handle.todo = todo
	return todo
}

// run sends all rows of one pass. After a lost chunk the rest is not tried,
// nor a further pass: a kernel that does not answer would cost its time-out for
// each.
func (b *batch[C]) run(ctx context.Context, todo []row, final bool) error {
	for len(todo) > 0 {
		if err := b.handle.ready(ctx); err != nil {
			b.failAll(todo, err)
			return err
		}
		c := b.pack(todo)
		b.handle.count.Rows += uint64(c.count)
		answers, err := b.handle.exchange(ctx, c, noData)
		for i, a := range answers {
			b.settle(todo[i], a, err, final)
		}
		todo = todo[c.count:]
		if err != nil {
			err = fmt.Errorf("not sent: %w", err)
			b.failAll(todo, err)
			return err
		}
	}
	return nil
}

// pack fills a chunk with as many of the rows as the options and the socket
// allow, at least one.
func (b *batch[C]) pack(todo []row) chunk {
	var c chunk
	limit := b.handle.wire.SendLimit()
	for _, r := range todo[:min(len(todo), b.handle.opts.ChunkRows)] {
		previous := c.last
		mark := b.handle.begin(&c, b.changes[r.index].command(r.op))
		b.changes[r.index].encode(&b.handle.out, r.op)
		b.handle.out.end(mark)
		if len(b.handle.out) > limit && c.count > 1 {
			b.handle.undo(&c, previous)
			break
		}
	}
	return c
}

// settle records the result of one row.
func (b *batch[C]) settle(r row, a answer, lost error, final bool) {
	switch {
	case !a.known:
		b.fail(r.index, fmt.Errorf("%w: %w", ErrUnknown, lost))
	case a.errno == 0:
		b.handle.servers += b.changes[r.index].servers(r.op)
	default:
		next, again, err := b.changes[r.index].settle(r.op, a)
		if err != nil {
			b.handle.doubtFamily(a.errno)
		}
		if again && final {
			again, err = false, a.fault()
		}
		if again {
			b.again = append(b.again, row{index: r.index, op: next})
		} else if err != nil {
			b.fail(r.index, err)
		}
	}
}

func (b *batch[C]) fail(i int, err error) {
	if b.errs == nil {
		b.errs = make([]error, len(b.changes))
	}
	b.errs[i] = fmt.Errorf("%s: %w", b.changes[i].describe(), err)
}

func (b *batch[C]) failAll(rows []row, err error) {
	for _, r := range rows {
		b.fail(r.index, err)
	}
}
