package ipset

import (
	"fmt"
	"time"
)

// Change is one row of a Write. Adding what is there and deleting what is not
// are successes: a write describes a wanted state.
type Change struct {
	Op    Op // OpAdd or OpDelete
	Entry Entry
}

// AddEntry returns the change that makes the entry a member.
func AddEntry(e Entry) Change { return Change{OpAdd, e} }

// DeleteEntry returns the change that makes the entry no member.
func DeleteEntry(e Entry) Change { return Change{OpDelete, e} }

// String prints "add 10.96.0.1,tcp:80".
func (c Change) String() string { return c.Op.String() + " " + c.Entry.String() }

// Batch has the changes of one set.
type Batch struct {
	Set     Set
	Changes []Change
}

// Info is what the kernel reports about a set besides its header.
type Info struct {
	Set        Set
	Revision   uint8
	Elements   uint32 // entries now
	References uint32 // rules and list sets that use it; not 0 means no destroy
	Memory     uint32 // bytes
}

// Fill returns how full a hash set is, from 0 to 1, and 0 for other types.
func (i Info) Fill() float64 {
	if i.Set.MaxElem == 0 {
		return 0
	}
	return float64(i.Elements) / float64(i.Set.MaxElem)
}

// Version is the range of ipset protocol versions the kernel speaks.
type Version struct {
	Protocol uint8
	Min      uint8
}

// Options configure a Handle. The zero value is ready to use.
type Options struct {
	// Timeout bounds each call whose context has no earlier deadline. 0 means
	// DefaultTimeout.
	Timeout time.Duration
	// Called gets the duration and the error of each exchange with the kernel. It may be nil.
	Called func(took time.Duration, err error)
}

// DefaultTimeout bounds a call when Options say nothing.
const DefaultTimeout = 5 * time.Second

// Defaults returns the options with zero values filled in.
func (o Options) Defaults() Options {
	if o.Timeout == 0 {
		o.Timeout = DefaultTimeout
	}
	if o.Called == nil {
		o.Called = func(time.Duration, error) {}
	}
	return o
}

// Validate refuses a negative timeout.
func (o Options) Validate() error {
	if o.Timeout < 0 {
		return fmt.Errorf("timeout %s is negative", o.Timeout)
	}
	return nil
}

// validate checks the operation and whether the entry fits.
func (c Change) validate(s Set) error {
	if c.Op != OpAdd && c.Op != OpDelete {
		return fmt.Errorf("%s is not a change: %w", c.Op, ErrInvalid)
	}
	return s.fits(c.Op, c.Entry)
}

// fits checks an entry for an operation. A deletion need only be possible to
// encode: every entry that was found in the kernel may be removed, however it came there.
func (s Set) fits(op Op, e Entry) error {
	switch {
	case !s.Type.Supported():
		return fmt.Errorf("members of type %s: %w", s.Type, ErrUnsupported)
	case op != OpDelete:
		return invalid(s.checkEntry(e))
	case s.Type.Hash() != e.Addr.IsValid():
		return fmt.Errorf("entry does not fit type %s: %w", s.Type, ErrInvalid)
	}
	return nil
}

// sameShape refuses a set found with another type or family.
func (s Set) sameShape(found Set) error {
	if s.Type == found.Type && s.Family == found.Family {
		return nil
	}
	return fmt.Errorf("set is %s %s in the kernel, not %s %s: %w",
		found.Type, found.Family, s.Type, s.Family, ErrInvalid)
}
