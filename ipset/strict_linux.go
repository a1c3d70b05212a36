package ipset

import (
	"context"
	"errors"
	"syscall"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Add makes the entries members of a set, in order, and stops at the first
// failure. It fails with ErrExist for an entry that is already there; Write
// does not mind.
func (h *Handle) Add(ctx context.Context, name string, entries ...Entry) error {
	return h.each(ctx, OpAdd, name, entries)
}

// Delete removes the entries from a set, in order, and stops at the first
// failure. It fails with ErrNotExist for an entry that is not there; Write does
// not mind.
func (h *Handle) Delete(ctx context.Context, name string, entries ...Entry) error {
	return h.each(ctx, OpDelete, name, entries)
}

// Test reports whether the kernel would match the entry. In a set of networks
// that is true for a network of full length, an address, inside a member.
func (h *Handle) Test(ctx context.Context, name string, e Entry) (bool, error) {
	err := h.each(ctx, OpTest, name, []Entry{e})
	if errors.Is(err, codeExist) {
		return false, nil
	}
	return err == nil, err
}

var commands = map[Op]uint16{OpAdd: nl.IPSET_CMD_ADD, OpDelete: nl.IPSET_CMD_DEL, OpTest: nl.IPSET_CMD_TEST}

// each sends one strict message per entry.
func (h *Handle) each(ctx context.Context, op Op, name string, entries []Entry) error {
	s, err := h.header(ctx, name)
	if err != nil {
		return fail(op, Error{Set: name}, err)
	}
	for _, e := range entries {
		if err := s.fits(op, e); err != nil {
			return failEntry(op, name, e, err)
		}
		h.begin(commands[op], unix.NLM_F_ACK|unix.NLM_F_EXCL)
		h.msg.str(nl.IPSET_ATTR_SETNAME, name)
		h.msg.entry(e, 0)
		if err := h.command(ctx); err != nil {
			return failEntry(op, name, e, err)
		}
	}
	return nil
}

// header reads type and family of a set, without range and sizes. It runs before every write, for a
// few microseconds, because the kernel silently drops fields of an entry that the set's type does
// not have.
func (h *Handle) header(ctx context.Context, name string) (Set, error) {
	sets, errs := h.headers(ctx, []string{name})
	return sets[0], errs[0]
}

// headers is header for several sets at once. An error that is none of a single set is
// that of all which have no answer.
func (h *Handle) headers(ctx context.Context, names []string) (sets []Set, errs []error) {
	sets, errs = make([]Set, len(names)), make([]error, len(names))
	for start := 0; start < len(names); start += maxTogether {
		end := min(start+maxTogether, len(names))
		if err := h.someHeaders(ctx, names[start:end], sets[start:end], errs[start:end]); err != nil {
			for i := end; i < len(names); i++ {
				errs[i] = err
			}
			break
		}
	}
	return sets, errs
}

func (h *Handle) someHeaders(ctx context.Context, names []string, sets []Set, errs []error) error {
	first := h.conn.seq + 1
	var asked []int // the name that each message is about
	h.msg.b = h.msg.b[:0]
	for i, name := range names {
		if errs[i] = checkNames(name); errs[i] != nil {
			continue
		}
		sets[i].Name = name
		asked = append(asked, i)
		h.next(nl.IPSET_CMD_HEADER, 0)
		h.msg.str(nl.IPSET_ATTR_SETNAME, name)
		h.msg.end()
	}
	if len(asked) == 0 {
		return nil
	}
	answered := 0
	err := h.conn.exchange(ctx, h.msg.b, first, func(r reply) (done bool, err error) {
		i := asked[r.seq-first]
		if r.typ == unix.NLMSG_ERROR {
			errs[i], err = status(r.body)
		} else {
			err = eachAttr(r.body, sets[i].take)
		}
		answered++
		return answered == len(asked), err
	})
	if err != nil {
		for _, i := range asked[answered:] { // the kernel answers in order
			errs[i] = err
		}
	}
	return err
}

// take reads an attribute of a header.
func (s *Set) take(a attr) {
	switch a.typ {
	case nl.IPSET_ATTR_TYPENAME:
		s.Type = Type(a.str())
	case nl.IPSET_ATTR_FAMILY:
		s.Family = Family(a.u8())
	}
}

// failEntry is fail for an entry, whose shape tells which codes apply.
func failEntry(op Op, name string, e Entry, err error) error {
	var code answer
	if errors.As(err, &code) {
		err = explain(op, syscall.Errno(code), !e.Addr.IsValid())
	}
	return &Error{Op: op, Set: name, Entry: e.String(), Err: err}
}
