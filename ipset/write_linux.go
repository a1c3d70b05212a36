package ipset

import (
	"cmp"
	"context"
	"encoding/binary"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Sizes of a batch. 512 elements of the longest kind take 44 KiB: below the
// 64 KiB an attribute can hold and a reply buffer takes back, and about a
// quarter of a millisecond under the kernel's ipset lock. Of single messages
// fewer go out together, because each may be answered by an error of its own and
// the default receive buffer holds about 270 of those.
const (
	maxElements = 512
	maxSingles  = 128
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
	w := writer{h: h, set: s, changes: changes}
	found, err := h.header(ctx, s.Name)
	if err = cmp.Or(err, s.sameShape(found)); err != nil {
		w.rejectAll(err)
		return w.errs
	}
	w.rows = w.admit()
	w.send(ctx)
	return w.errs
}

// writer is the state of one Write.
type writer struct {
	h       *Handle
	set     Set
	changes []Change
	rows    []int   // indexes of changes still to be sent
	errs    []error // nil until something fails
}

// send works off the rows, message by message. After an error nothing more is
// sent, and the rows not answered carry it.
func (w *writer) send(ctx context.Context) {
	for len(w.rows) > 0 {
		run := w.run()
		w.rows = w.rows[len(run):]
		if err := w.batch(ctx, run); err != nil {
			w.reject(err, w.rows...)
			return
		}
	}
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

// batch sends rows as the elements of one message. The kernel applies them in
// order and stops at the first it refuses, which it names by line number; that
// row gets the error and those behind it are sent one by one. An error returned
// means that nothing more can be sent; it is noted for the rows given.
func (w *writer) batch(ctx context.Context, rows []int) error {
	w.elements(rows)
	var code error
	var line uint32
	err := w.h.conn.exchange(ctx, w.h.msg.b, w.h.conn.seq, func(r reply) (done bool, err error) {
		if r.typ != unix.NLMSG_ERROR {
			return false, nil
		}
		code, err = status(r.body)
		line = refusedLine(r.body)
		return true, err
	})
	if err != nil {
		w.reject(err, rows...)
		return err
	}
	if code == nil {
		return nil
	}
	if line == 0 || int(line) > len(rows) { // about the message, not about an element
		w.reject(code, rows...)
		return nil
	}
	w.reject(code, rows[line-1])
	return w.singles(ctx, rows[line:])
}

// elements builds the message of a batch. The line number stands before the
// elements, so that it is found in a reply without measuring them.
func (w *writer) elements(rows []int) {
	h := w.h
	h.begin(commands[w.changes[rows[0]].Op], unix.NLM_F_ACK)
	h.msg.str(nl.IPSET_ATTR_SETNAME, w.set.Name)
	h.msg.lineno(0)
	at := h.msg.nest(nl.IPSET_ATTR_ADT)
	for n, i := range rows {
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
	h, first := w.h, w.h.conn.seq+1
	h.msg.b = h.msg.b[:0]
	for _, i := range rows {
		h.next(commands[w.changes[i].Op], unix.NLM_F_ACK)
		h.msg.str(nl.IPSET_ATTR_SETNAME, w.set.Name)
		h.msg.entry(w.changes[i].Entry, 0)
		h.msg.end()
	}
	answered := 0
	err := h.conn.exchange(ctx, h.msg.b, first, func(r reply) (done bool, err error) {
		if r.typ != unix.NLMSG_ERROR {
			return false, nil
		}
		code, err := status(r.body)
		if code != nil {
			w.reject(code, rows[r.seq-first])
		}
		answered++
		return answered == len(rows), err
	})
	if err != nil {
		w.reject(err, rows[answered:]...) // the kernel answers in order
	}
	return err
}
