package ipset

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Create makes an empty set. It fails with ErrExist when the name is taken,
// whatever by, with ErrInvalid before asking the kernel, and with
// ErrUnsupported when the kernel has no such type.
//
// The kernel's own "create unless it exists" is not offered: it accepts a set
// of the other family. List and compare with Set.Compatible instead.
func (h *Handle) Create(ctx context.Context, s Set) error {
	return cmp.Or(h.CreateAll(ctx, s)...)
}

// CreateAll is Create for several sets, some thirty in one exchange with the kernel. It
// returns nil when all were made, else one error per set, nil for those made. When the
// context ends or the socket fails, the sets under way and all later ones carry that error.
func (h *Handle) CreateAll(ctx context.Context, sets ...Set) []error {
	c := creator{h: h, sets: sets, revisions: make([]uint8, len(sets))}
	for some := range slices.Chunk(c.admit(ctx), maxTogether) {
		c.send(ctx, some)
	}
	return c.errs
}

// creator is the state of one CreateAll.
type creator struct {
	h         *Handle
	sets      []Set
	revisions []uint8
	errs      []error // nil until something fails
	failed    error   // error of the socket
}

func (c *creator) reject(i int, err error) {
	if c.errs == nil {
		c.errs = make([]error, len(c.sets))
	}
	c.errs[i] = fail(OpCreate, Error{Set: c.sets[i].Name}, err)
}

// admit returns the indexes of the sets worth sending.
func (c *creator) admit(ctx context.Context) (good []int) {
	for i, s := range c.sets {
		err := cmp.Or(c.failed, s.Validate())
		if err == nil {
			if c.revisions[i], err = c.h.Revision(ctx, s.Type, s.Family); errors.Is(err, context.DeadlineExceeded) {
				c.failed = err // each would wait as long
			}
		}
		if err != nil {
			c.reject(i, err)
			continue
		}
		good = append(good, i)
	}
	return good
}

func (c *creator) send(ctx context.Context, some []int) {
	answered := 0
	if c.failed == nil {
		c.h.msg.b = c.h.msg.b[:0]
		for _, i := range some {
			c.h.next(nl.IPSET_CMD_CREATE, unix.NLM_F_ACK|unix.NLM_F_CREATE|unix.NLM_F_EXCL)
			c.h.msg.create(c.sets[i].WithDefaults(), c.revisions[i])
			c.h.msg.end()
		}
		answered, c.failed = c.h.verdicts(ctx, len(some), func(n int, code error, _ []byte) {
			if code != nil {
				c.reject(some[n], code)
			}
		})
	}
	if c.failed != nil {
		for _, i := range some[answered:] {
			c.reject(i, c.failed)
		}
	}
}

// Destroy removes a set with its entries. It fails with ErrNotExist, and with
// ErrBusy while a rule or another set refers to it.
func (h *Handle) Destroy(ctx context.Context, name string) error {
	return h.named(ctx, OpDestroy, nl.IPSET_CMD_DESTROY, name)
}

// Flush removes all entries of a set. It fails with ErrNotExist.
func (h *Handle) Flush(ctx context.Context, name string) error {
	return h.named(ctx, OpFlush, nl.IPSET_CMD_FLUSH, name)
}

// Swap exchanges the content of two sets in one step; rules keep referring to
// the name. It fails with ErrNotExist when either is missing and with
// ErrUnsupported when their types or families differ. Capacities may differ.
func (h *Handle) Swap(ctx context.Context, a, b string) error {
	return h.pair(ctx, OpSwap, nl.IPSET_CMD_SWAP, a, b)
}

// Rename gives a set that nothing refers to a new name. It fails with
// ErrNotExist, ErrBusy, and ErrExist when the new name is taken.
func (h *Handle) Rename(ctx context.Context, from, to string) error {
	return h.pair(ctx, OpRename, nl.IPSET_CMD_RENAME, from, to)
}

// named runs a command on one set. The name is checked first: the kernel takes
// a command without a name for "all sets".
func (h *Handle) named(ctx context.Context, op Op, cmd uint16, name string) error {
	where := Error{Set: name}
	if err := checkNames(name); err != nil {
		return fail(op, where, err)
	}
	h.begin(cmd, unix.NLM_F_ACK|unix.NLM_F_EXCL) // without EXCL a missing set is destroyed successfully
	h.msg.str(nl.IPSET_ATTR_SETNAME, name)
	return fail(op, where, h.command(ctx))
}

// pair runs a command on two sets.
func (h *Handle) pair(ctx context.Context, op Op, cmd uint16, a, b string) error {
	where := Error{Set: a, Other: b}
	if err := checkNames(a, b); err != nil {
		return fail(op, where, err)
	}
	h.begin(cmd, unix.NLM_F_ACK)
	h.msg.str(nl.IPSET_ATTR_SETNAME, a)
	h.msg.str(nl.IPSET_ATTR_SETNAME2, b)
	return fail(op, where, h.command(ctx))
}

// Replace gives the set exactly these entries and this header without a gap; see
// the function Replace.
func (h *Handle) Replace(ctx context.Context, s Set, entries []Entry) error {
	return Replace(ctx, h, s, entries)
}
