package ipset

import (
	"context"
	"errors"
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// dumpAttempts bounds how often an interrupted list is begun again.
const dumpAttempts = 4

// ListSets returns the headers of all sets of the namespace, those of
// unsupported types included, in the kernel's order.
func (h *Handle) ListSets(ctx context.Context) ([]Set, error) {
	infos, err := h.Stat(ctx)
	if err != nil {
		return nil, err
	}
	sets := make([]Set, len(infos))
	for i := range infos {
		sets[i] = infos[i].Set
	}
	return sets, nil
}

// Stat returns the headers of all sets with the kernel's counts, which tell
// fill and use. Entries are not read.
func (h *Handle) Stat(ctx context.Context) ([]Info, error) {
	parts, err := h.dump(ctx, "", flagListHeader)
	if err != nil {
		return nil, fail(OpList, Error{Set: "all sets"}, err)
	}
	infos := make([]Info, 0, len(parts))
	for _, p := range parts {
		if p.header {
			infos = append(infos, p.info)
		}
	}
	return infos, nil
}

// List returns the header and all entries of one set, in the kernel's order. It fails with
// ErrNotExist, with ErrUnsupported (and the header) for a type that this package does not decode,
// and with ErrInterrupted if every attempt was interrupted. It never returns a part of the entries.
func (h *Handle) List(ctx context.Context, name string) (Set, []Entry, error) {
	where := Error{Set: name}
	if err := checkNames(name); err != nil {
		return Set{}, nil, fail(OpList, where, err)
	}
	parts, err := h.dump(ctx, name, 0)
	if err != nil {
		return Set{}, nil, fail(OpList, where, err)
	}
	info, entries, err := merge(name, parts)
	return info.Set, entries, fail(OpList, where, err)
}

// merge joins the messages of one set. The first one has the header, and with
// it the type by which the entries of all are read.
func merge(name string, parts []part) (Info, []Entry, error) {
	if len(parts) == 0 || !parts[0].header {
		return Info{}, nil, fmt.Errorf("list without a header: %w", errMalformed)
	}
	info := parts[0].info
	if !info.Set.Type.Supported() {
		return info, nil, fmt.Errorf("members of type %s: %w", info.Set.Type, ErrUnsupported)
	}
	entries := make([]Entry, 0, info.Elements)
	for _, p := range parts {
		if p.name != name {
			return Info{}, nil, fmt.Errorf("list holds set %q: %w", p.name, errMalformed)
		}
		var err error
		if entries, err = decodeEntries(entries, info.Set.Type, p.members); err != nil {
			return Info{}, nil, err
		}
	}
	return info, entries, nil
}

// dump lists one set, or all when name is empty.
func (h *Handle) dump(ctx context.Context, name string, flags uint32) ([]part, error) {
	return untilWhole(func() ([]part, error) { return h.dumpOnce(ctx, name, flags) })
}

// untilWhole repeats a dump while the kernel reports that the set changed meanwhile.
func untilWhole(dump func() ([]part, error)) ([]part, error) {
	for range dumpAttempts {
		parts, err := dump()
		if !errors.Is(err, ErrInterrupted) {
			return parts, err
		}
	}
	return nil, fmt.Errorf("%d attempts: %w", dumpAttempts, ErrInterrupted)
}

func (h *Handle) dumpOnce(ctx context.Context, name string, flags uint32) ([]part, error) {
	h.begin(nl.IPSET_CMD_LIST, unix.NLM_F_DUMP)
	if name != "" {
		h.msg.str(nl.IPSET_ATTR_SETNAME, name)
	}
	if flags != 0 {
		h.msg.net32(nl.IPSET_ATTR_FLAGS, flags)
	}
	h.msg.end()
	var d dumper
	err := h.conn.exchange(ctx, h.msg.b, h.conn.seq, d.take)
	if err = errors.Join(err, d.code); err != nil {
		return nil, err
	}
	if d.interrupted {
		return nil, ErrInterrupted
	}
	return d.parts, nil
}

// dumper collects the messages of a dump. An interrupted one is read to its end
// all the same, because the socket serves one dump at a time.
type dumper struct {
	parts       []part
	code        error
	interrupted bool
}

func (d *dumper) take(r reply) (done bool, err error) {
	d.interrupted = d.interrupted || r.flags&unix.NLM_F_DUMP_INTR != 0
	switch r.typ {
	case unix.NLMSG_DONE, unix.NLMSG_ERROR:
		if len(r.body) >= 4 {
			d.code, err = status(r.body)
		}
		return true, err
	case unix.NLMSG_NOOP:
		return false, nil
	}
	const family = headerLen - unix.SizeofNlMsghdr
	if len(r.body) < family {
		return false, errMalformed
	}
	p, err := decodePart(r.body[family:])
	if err != nil {
		return false, err
	}
	p.members = append([]byte(nil), p.members...) // the buffer is read into again
	d.parts = append(d.parts, p)
	return false, nil
}
