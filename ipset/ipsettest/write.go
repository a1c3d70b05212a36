package ipsettest

import (
	"context"
	"errors"
	"fmt"

	"github.com/kube-ipvs/kube-ipvs/ipset"
)

// Add makes the entries members, strictly and in order, like Handle.Add.
func (f *Fake) Add(ctx context.Context, name string, entries ...ipset.Entry) error {
	return f.each(ctx, ipset.OpAdd, name, entries)
}

// Delete removes the entries, strictly and in order, like Handle.Delete.
func (f *Fake) Delete(ctx context.Context, name string, entries ...ipset.Entry) error {
	return f.each(ctx, ipset.OpDelete, name, entries)
}

// Test reports whether the kernel would match the entry, like Handle.Test.
func (f *Fake) Test(ctx context.Context, name string, e ipset.Entry) (bool, error) {
	found := false
	err := f.run(ctx, &ipset.Error{Op: ipset.OpTest, Set: name, Entry: e.String()}, func() error {
		s, err := f.find(name)
		if err == nil {
			err = s.fits(ipset.OpTest, e)
		}
		if err == nil {
			found = s.matches(e)
		}
		return err
	})
	return found, err
}

// matches looks for the entry, and for an address also through the networks
// around it, the longest first.
func (s *set) matches(e ipset.Entry) bool {
	e.NoMatch = false
	noMatch, ok := s.members[e]
	if !e.Net.IsSingleIP() {
		return ok && !noMatch
	}
	for length := e.Net.Bits(); !ok && length > 0; length-- {
		e.Net, _ = e.Net.Addr().Prefix(length) // length is in range
		noMatch, ok = s.members[e]
	}
	return ok && !noMatch
}

func (f *Fake) each(ctx context.Context, op ipset.Op, name string, entries []ipset.Entry) error {
	for _, e := range entries {
		err := f.run(ctx, &ipset.Error{Op: op, Set: name, Entry: e.String()}, func() error {
			s, err := f.find(name)
			if err == nil {
				err = s.fits(op, e)
			}
			if err == nil {
				err = s.change(ipset.Change{Op: op, Entry: e})
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Write applies changes in order, like Handle.Write. Rows fail one by one. Adding an existing entry
// or deleting a missing one succeeds. When the context ends, the current row and all later ones get
// its error.
func (f *Fake) Write(ctx context.Context, s ipset.Set, changes []ipset.Change) []error {
	f.mu.Lock()
	f.counts.Writes++
	f.mu.Unlock()
	errs := make([]error, len(changes))
	failed := false
	for i, c := range changes {
		errs[i] = f.row(ctx, s, c)
		failed = failed || errs[i] != nil
	}
	if !failed {
		return nil
	}
	return errs
}

// WriteAll is Write for several sets, like Handle.WriteAll.
func (f *Fake) WriteAll(ctx context.Context, batches ...ipset.Batch) [][]error {
	out := make([][]error, len(batches))
	for i, b := range batches {
		out[i] = f.Write(ctx, b.Set, b.Changes)
	}
	return out
}

// row applies one change of a Write.
func (f *Fake) row(ctx context.Context, want ipset.Set, c ipset.Change) error {
	where := &ipset.Error{Op: c.Op, Set: want.Name, Entry: c.Entry.String()}
	return f.run(ctx, where, func() error {
		s, err := f.find(want.Name)
		if err != nil {
			return err
		}
		if s.header.Type != want.Type || s.header.Family != want.Family {
			return fmt.Errorf("set is %s %s in the kernel: %w", s.header.Type, s.header.Family, ipset.ErrInvalid)
		}
		f.counts.Rows++
		if err := s.fits(c.Op, c.Entry); err != nil {
			return err
		}
		err = s.change(c)
		if errors.Is(err, ipset.ErrExist) {
			s.put(c.Entry) // the kernel takes over the nomatch bit
		}
		return converged(err)
	})
}

// converged takes an answer that the state is as wanted for success.
func converged(err error) error {
	if errors.Is(err, ipset.ErrExist) || errors.Is(err, ipset.ErrNotExist) {
		return nil
	}
	return err
}

// fits refuses what Handle or the kernel refuse for this set.
func (s *set) fits(op ipset.Op, e ipset.Entry) error {
	switch {
	case op != ipset.OpAdd && op != ipset.OpDelete && op != ipset.OpTest:
		return fmt.Errorf("%s is not a change: %w", op, ipset.ErrInvalid)
	case !s.header.Type.Supported():
		return fmt.Errorf("members of type %s: %w", s.header.Type, ipset.ErrUnsupported)
	case op == ipset.OpDelete && s.header.Type.Hash() != e.Addr.IsValid():
		return fmt.Errorf("entry does not fit type %s: %w", s.header.Type, ipset.ErrInvalid)
	case op == ipset.OpDelete && s.header.Type.Hash():
		return nil
	}
	return errors.Unwrap(s.header.ValidateEntry(e)) // the caller adds the entry and the set
}

// change applies a change strictly.
func (s *set) change(c ipset.Change) error {
	key := c.Entry
	key.NoMatch = false
	_, there := s.members[key]
	switch {
	case c.Op == ipset.OpAdd && there:
		return fmt.Errorf("entry %w", ipset.ErrExist)
	case c.Op == ipset.OpDelete && !there:
		return fmt.Errorf("entry %w", ipset.ErrNotExist)
	case c.Op == ipset.OpDelete:
		delete(s.members, key)
		delete(s.expires, key)
		return nil
	case s.header.Type.Hash() && len(s.members) >= int(s.header.MaxElem):
		return ipset.ErrFull
	}
	s.put(c.Entry)
	return nil
}
