package ipset

import (
	"cmp"
	"context"
	"encoding/binary"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Sizes of a batch. 512 elements of the longest kind take 44 KiB, less than the 64 KiB that an
// attribute can hold and that a reply buffer returns. They keep the kernel's ipset lock for about a
// quarter of a millisecond. Of single messages fewer go out together, because each may be answered
// by an error of its own and the default receive buffer holds about 270 of those.
//
// Of messages of many elements several go out together until they have this many bytes: a
// refused one comes back whole, and the receive buffer has room for all.
const (
	maxElements = 512
	maxSingles  = 128
	maxTogether = 32
	maxBytes    = 16 << 10
)

// Write applies the changes to the set in their order, hundreds per message,
// and returns nil when all succeeded, else one error per change, nil for those
// applied. A refused row does not stop its neighbours. Adding what is there and
// deleting what is not are successes.
//
// When the context ends or the socket fails, the rows of the message under way
// and all later ones carry that error; some of the former may be applied.
//
// Only name, type, family and range of the set are used. A set that the kernel
// has with another type or family is not written to: every row is ErrInvalid.
func (h *Handle) Write(ctx context.Context, s Set, changes []Change) []error {
	if len(changes) == 0 {
		return nil
	}
	return h.WriteAll(ctx, Batch{s, changes})[0]
}

// WriteAll is Write for several sets at once. It needs two exchanges with the kernel in total
// instead of two for each set: one that reads the headers of all sets, and one that sends all
// changes. The results are those of the batches, and these are written in their order, but for rows
// behind a refused one. A set appears in one batch only.
func (h *Handle) WriteAll(ctx context.Context, batches ...Batch) [][]error {
	writers := make([]*writer, len(batches))
	for i, b := range batches {
		writers[i] = &writer{h: h, set: b.Set, changes: b.Changes}
	}
	h.admit(ctx, writers)
	h.sendAll(ctx, writers)
	out := make([][]error, len(batches))
	for i, w := range writers {
		out[i] = w.errs
	}
	return out
}

// admit asks for the sets, some at a time, and rejects what is for others than those that are there.
func (h *Handle) admit(ctx context.Context, writers []*writer) {
	names := make([]string, len(writers))
	for i, w := range writers {
		names[i] = w.set.Name
	}
	found, errs := h.headers(ctx, names)
	for i, w := range writers {
		if err := cmp.Or(errs[i], w.set.sameShape(found[i])); err != nil {
			w.rejectAll(err)
		} else {
			w.rows = w.admit()
		}
	}
}

// sendAll works off the rows of all writers, in order. After an error
// nothing more is sent, and the rows not answered carry it.
func (h *Handle) sendAll(ctx context.Context, writers []*writer) {
	for {
		sent := h.together(writers)
		if len(sent) == 0 {
			return
		}
		if err := h.batches(ctx, sent); err != nil {
			for _, w := range writers {
				w.reject(err, w.rows...)
			}
			return
		}
	}
}

// together builds the next messages, one of each writer, as many as may go out at once.
func (h *Handle) together(writers []*writer) (sent []*writer) {
	h.msg.b = h.msg.b[:0]
	for _, w := range writers {
		if len(w.rows) == 0 {
			continue
		}
		if len(sent) == maxTogether || len(h.msg.b) > maxBytes {
			break
		}
		w.sent, w.code, w.line = w.run(), nil, 0
		w.rows = w.rows[len(w.sent):]
		w.elements()
		if sent = append(sent, w); len(w.rows) > 0 {
			break // the next set is not ahead of this one
		}
	}
	return sent
}

// batches sends what together built. Each message is answered. The kernel applies the elements of
// one message in order and stops at the first that it refuses, which it names by line number. The
// refused row gets the error, and the rows after it are sent one by one. An error returned means
// that nothing more can be sent; it is noted for the rows that have no answer.
func (h *Handle) batches(ctx context.Context, sent []*writer) error {
	answered, err := h.verdicts(ctx, len(sent), func(i int, code error, body []byte) {
		sent[i].code, sent[i].line = code, refusedLine(body)
	})
	for i, w := range sent {
		switch {
		case err != nil && i >= answered: // the kernel answers in order
			w.reject(err, w.sent...)
		case err != nil:
			w.reject(err, w.refused()...)
		default:
			err = w.settle(ctx)
		}
	}
	return err
}

// writer is the state of what is written to one set.
type writer struct {
	h       *Handle
	set     Set
	changes []Change
	rows    []int   // indexes of changes still to be sent
	errs    []error // nil until something fails

	sent []int  // those under way, and what the kernel said of them
	code error  // nil: all of them are applied
	line uint32 // the refused one, counted from 1; 0 is none
}

// settle notes the results of the rows in progress, and sends those again that the kernel did not
// reach.
func (w *writer) settle(ctx context.Context) error {
	rest := w.refused()
	if len(rest) == 0 {
		return nil
	}
	return w.singles(ctx, rest)
}

// refused notes what the kernel refused of the rows under way, and returns those that it
// did not come to.
func (w *writer) refused() (rest []int) {
	switch {
	case w.code == nil:
		return nil
	case w.line == 0 || int(w.line) > len(w.sent): // about the message, not about an element
		w.reject(w.code, w.sent...)
		return nil
	}
	w.reject(w.code, w.sent[w.line-1])
	return w.sent[w.line:]
}

// admit returns the indexes of the rows worth sending.
func (w *writer) admit() []int {
	rows := make([]int, 0, len(w.changes))
	for i, c := range w.changes {
		if err := c.validate(w.set); err != nil {
			w.reject(err, i)
			continue
		}
		rows = append(rows, i)
	}
	return rows
}

// rejectAll notes one error for every row.
func (w *writer) rejectAll(err error) {
	for i := range w.changes {
		w.reject(err, i)
	}
}

// reject notes the error of rows that have none yet.
func (w *writer) reject(err error, rows ...int) {
	if w.errs == nil {
		w.errs = make([]error, len(w.changes))
	}
	for _, i := range rows {
		if c := w.changes[i]; w.errs[i] == nil {
			w.errs[i] = failEntry(c.Op, w.set.Name, c.Entry, err)
		}
	}
}

// run returns the leading rows that fit one message: same operation, not too
// many.
func (w *writer) run() []int {
	op := w.changes[w.rows[0]].Op
	for n, i := range w.rows {
		if n == maxElements || w.changes[i].Op != op {
			return w.rows[:n]
		}
	}
	return w.rows
}

// elements appends the message of the rows under way. The line number comes before the elements, so
// that it is found in a reply without measuring them.
func (w *writer) elements() {
	h := w.h
	h.next(commands[w.changes[w.sent[0]].Op], unix.NLM_F_ACK)
	h.msg.str(nl.IPSET_ATTR_SETNAME, w.set.Name)
	h.msg.lineno(0)
	at := h.msg.nest(nl.IPSET_ATTR_ADT)
	for n, i := range w.sent {
		h.msg.entry(w.changes[i].Entry, uint32(n+1))
	}
	h.msg.unnest(at)
	h.msg.end()
}

// refusedLine finds the line number in the copy of the request that comes back
// with a refusal, 0 when there is none.
func refusedLine(body []byte) (line uint32) {
	const skip = 4 + headerLen // the code and the headers of the copy
	for a, err := range attrs(body[min(skip, len(body)):]) {
		if err != nil {
			return 0
		}
		if a.typ == nl.IPSET_ATTR_LINENO && len(a.data) >= 4 {
			return binary.NativeEndian.Uint32(a.data)
		}
	}
	return 0
}

// singles sends rows as one message each, many in a system call. Every message
// asks for its answer, so each row learns its own fate.
func (w *writer) singles(ctx context.Context, rows []int) error {
	for len(rows) > 0 {
		some := rows[:min(maxSingles, len(rows))]
		rows = rows[len(some):]
		if err := w.single(ctx, some); err != nil {
			w.reject(err, rows...)
			return err
		}
	}
	return nil
}

func (w *writer) single(ctx context.Context, rows []int) error {
	h := w.h
	h.msg.b = h.msg.b[:0]
	for _, i := range rows {
		h.next(commands[w.changes[i].Op], unix.NLM_F_ACK)
		h.msg.str(nl.IPSET_ATTR_SETNAME, w.set.Name)
		h.msg.entry(w.changes[i].Entry, 0)
		h.msg.end()
	}
	answered, err := h.verdicts(ctx, len(rows), func(i int, code error, _ []byte) {
		if code != nil {
			w.reject(code, rows[i])
		}
	})
	if err != nil {
		w.reject(err, rows[answered:]...)
	}
	return err
}
