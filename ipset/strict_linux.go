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

// header reads type and family of a set, without range and sizes. It stands
// before every write, for a few microseconds, because the kernel silently drops
// fields of an entry that the set's type does not have.
func (h *Handle) header(ctx context.Context, name string) (Set, error) {
	if err := checkNames(name); err != nil {
		return Set{}, err
	}
	s := Set{Name: name}
	h.begin(nl.IPSET_CMD_HEADER, 0)
	h.msg.str(nl.IPSET_ATTR_SETNAME, name)
	err := h.ask(ctx, func(a attr) {
		switch a.typ {
		case nl.IPSET_ATTR_TYPENAME:
			s.Type = Type(a.str())
		case nl.IPSET_ATTR_FAMILY:
			s.Family = Family(a.u8())
		}
	})
	return s, err
}

// failEntry is fail for an entry, whose shape tells which codes apply.
func failEntry(op Op, name string, e Entry, err error) error {
	var code answer
	if errors.As(err, &code) {
		err = explain(op, syscall.Errno(code), !e.Addr.IsValid())
	}
	return &Error{Op: op, Set: name, Entry: e.String(), Err: err}
}
