package link

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Write binds and unbinds addresses in the order given. The result is nil if all
// rows are applied, else it has one error per row, nil for those that are. A row
// whose outcome is unknown has ErrBusy; without the link, additions have
// ErrNotExist and deletions are done.
func (h *Handle) Write(ctx context.Context, changes []Change) []error {
	if len(changes) == 0 {
		return nil
	}
	errs := make([]error, len(changes))
	d, err := h.ours(ctx)
	for start := 0; start < len(changes); start += h.opts.Slice {
		end := min(start+h.opts.Slice, len(changes))
		if err == nil {
			err = h.writeSlice(ctx, d.index, changes[start:end], errs[start:end])
		}
		// Once a slice got no answer the rest is not tried: the next would wait
		// for as long again. The rows stay with the caller.
		if err != nil {
			fail(changes[start:end], errs[start:end], err)
		}
	}
	return h.settle(changes, errs)
}

// writeSlice sends one slice. Its error is that of the exchange as a whole.
func (h *Handle) writeSlice(ctx context.Context, index uint32, changes []Change, errs []error) error {
	rows := make([]int, 0, len(changes))    // request -> row; bad rows are not sent
	sent := make([]Change, 0, len(changes)) // a copy: an abandoned call may still use it
	for i, c := range changes {
		if errs[i] = c.Check(); errs[i] == nil {
			rows, sent = append(rows, i), append(sent, c)
		}
	}
	if len(sent) == 0 {
		return nil
	}
	for _, c := range sent {
		h.ownEvents.expect(c.deleted())
	}
	answers, err := call(ctx, h, func(c *conn) ([]error, error) { return c.bind(sent, index) })
	for n, i := range rows {
		if err == nil {
			errs[i] = answers[n]
		}
		// Nothing was deleted, or the outcome is unknown: the watch must report all further events.
		if err != nil || errs[i] != nil {
			h.ownEvents.cancel(changes[i].deleted())
		}
	}
	return err
}

func (c Change) deleted() any { return deletedBy(c.Op, c.Addr) }

// fail gives every row without an error of its own the error of its slice.
func fail(changes []Change, errs []error, err error) {
	for i := range errs {
		if errs[i] == nil {
			if errs[i] = changes[i].Check(); errs[i] == nil {
				errs[i] = err
			}
		}
	}
}

// settle turns "already so" into success, names the row in what is left, counts,
// and returns nil if nothing failed.
func (h *Handle) settle(changes []Change, errs []error) []error {
	for i, c := range changes {
		if errs[i] = settled(c, errs[i]); errs[i] != nil {
			errs[i] = fmt.Errorf("%s on link %s: %w", c, h.opts.Name, errs[i])
		}
	}
	return h.tally(errs)
}

// tally counts rows that were written, an error or nil each, and returns nil if none
// failed.
func (h *Handle) tally(errs []error) []error {
	failed := 0
	for _, err := range errs {
		if err != nil {
			failed++
		}
	}
	h.count.rows.Add(uint64(len(errs)))
	h.count.failed.Add(uint64(failed))
	if failed == 0 {
		return nil
	}
	return errs
}

func settled(c Change, err error) error {
	switch {
	case c.Op == Delete && errors.Is(err, ErrNotExist):
		return nil
	case c.Op == Add && errors.Is(err, unix.EEXIST):
		return nil
	case c.Op == Add && c.Addr.Is6() && errors.Is(err, unix.EACCES):
		return fmt.Errorf("IPv6 is disabled on the link: %w (%w)", ErrUnsupported, err)
	}
	return err
}
