package ipset

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
)

// replacer is the part of a handle or its fake that Replace uses.
type replacer interface {
	Create(ctx context.Context, s Set) error
	Destroy(ctx context.Context, name string) error
	Swap(ctx context.Context, a, b string) error
	Rename(ctx context.Context, from, to string) error
	Write(ctx context.Context, s Set, changes []Change) []error
}

// Replace gives the set exactly these entries and this header. At no time is the name missing or
// the set half filled: a temporary set is created, filled, and swapped in. Rules that refer to the
// name stay. It is how a set outgrows its maxelem.
//
// The kernel swaps sets of one type and family only. A set of another type or family is destroyed
// and created again under its name. While a rule refers to it, that is impossible: Replace then
// fails with ErrUnsupported and ErrBusy and changes nothing. When an entry is refused nothing is
// changed either.
func Replace(ctx context.Context, r replacer, s Set, entries []Entry) error {
	if err := s.Validate(); err != nil {
		return fmt.Errorf("replace %s: %w", s.Name, err)
	}
	temp := s
	temp.Name = TempName(s.Name)
	if err := fill(ctx, r, temp, entries); err != nil {
		return fmt.Errorf("replace %s: %w", s.Name, err)
	}
	if err := moveIn(ctx, r, temp.Name, s.Name); err != nil {
		return fmt.Errorf("replace %s: %w", s.Name, errors.Join(err, discard(ctx, r, temp.Name)))
	}
	return nil
}

// TempName returns the name of the set that Replace fills before it takes the place of the named
// one. It begins like the name of the set, so that a program that owns sets by prefix also owns a
// temporary set that was left behind. It is always the same, so that the next Replace finds that
// set.
func TempName(name string) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(name)) // a hash never fails
	return fmt.Sprintf("%.22s.%08x", name, h.Sum32())
}

// fill creates the temporary set with all entries; if that fails, it removes the set.
func fill(ctx context.Context, r replacer, temp Set, entries []Entry) error {
	if err := discard(ctx, r, temp.Name); err != nil {
		return err
	}
	if err := r.Create(ctx, temp); err != nil {
		return err
	}
	changes := make([]Change, len(entries))
	for i, e := range entries {
		changes[i] = AddEntry(e)
	}
	if err := firstError(r.Write(ctx, temp, changes)); err != nil {
		return errors.Join(err, discard(ctx, r, temp.Name))
	}
	return nil
}

// firstError returns the first failure and the number of others.
func firstError(errs []error) error {
	var first error
	others := 0
	for _, err := range errs {
		switch {
		case err == nil:
		case first == nil:
			first = err
		default:
			others++
		}
	}
	if others > 0 {
		return fmt.Errorf("%w (and %d more entries)", first, others)
	}
	return first
}

// moveIn puts the filled set in the place of the old one, by the gentlest way
// that the kernel allows.
func moveIn(ctx context.Context, r replacer, temp, name string) error {
	err := r.Swap(ctx, temp, name)
	switch {
	case err == nil:
		return discard(ctx, r, temp)
	case errors.Is(err, ErrNotExist):
		return r.Rename(ctx, temp, name)
	case !errors.Is(err, ErrUnsupported):
		return err
	}
	if busy := r.Destroy(ctx, name); busy != nil {
		return errors.Join(err, busy)
	}
	return r.Rename(ctx, temp, name)
}

// discard destroys a set that may not be there.
func discard(ctx context.Context, r replacer, name string) error {
	if err := r.Destroy(ctx, name); err != nil && !errors.Is(err, ErrNotExist) {
		return err
	}
	return nil
}
