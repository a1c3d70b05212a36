package ipvs

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/kube-ipvs/kube-ipvs/internal/delta"
	"github.com/kube-ipvs/kube-ipvs/ipset"
)

// memberKey names one entry of one set.
type memberKey struct {
	Set   string
	Entry ipset.Entry
}

func (c catalogue) compareMembers(a, b memberKey) int {
	return cmp.Or(c.compare(a.Set, b.Set), a.Entry.Compare(b.Entry))
}

// memberStore writes entries, many of one set at a time.
type memberStore struct {
	mode *Mode
	sets Sets
	// Of the last Write, to be used again.
	changes []ipset.Change
	batches []ipset.Batch
}

// List returns the entries of all our sets that exist in the right shape. The
// entries of another shape go with their set.
func (s *memberStore) List(ctx context.Context) (map[memberKey]struct{}, error) {
	out := map[memberKey]struct{}{}
	for name, found := range s.mode.sets.Actual() {
		if !sameShape(found, s.mode.catalogue.sets[name]) {
			continue
		}
		if err := s.collect(ctx, name, out); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (s *memberStore) collect(ctx context.Context, name string, into map[memberKey]struct{}) error {
	_, entries, err := s.sets.List(ctx, name)
	if errors.Is(err, ipset.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		into[memberKey{name, e}] = struct{}{}
	}
	return err
}

// Write hands the entries of all sets to the kernel in one call: they come sorted by set.
func (s *memberStore) Write(ctx context.Context, changes []delta.Change[memberKey, struct{}]) []error {
	s.changes, s.batches = slices.Grow(s.changes[:0], len(changes)), s.batches[:0]
	for first, i := 0, 0; i < len(changes); i++ {
		s.changes = append(s.changes, memberChange(changes[i]))
		if set := changes[i].Key.Set; i+1 == len(changes) || changes[i+1].Key.Set != set {
			s.batches = append(s.batches, ipset.Batch{Set: s.mode.catalogue.sets[set], Changes: s.changes[first:]})
			first = i + 1
		}
	}
	errs := make([]error, 0, len(changes))
	for i, of := range s.sets.WriteAll(ctx, s.batches...) {
		if of == nil {
			of = make([]error, len(s.batches[i].Changes))
		}
		s.judge(s.batches[i].Set.Name, of)
		errs = append(errs, of...)
	}
	return errs
}

// judge notes what errors tell of a set itself.
func (s *memberStore) judge(name string, errs []error) {
	full := false
	for _, err := range errs {
		switch {
		case errors.Is(err, ipset.ErrNotExist):
			s.mode.setLost(name)
		case errors.Is(err, ipset.ErrFull):
			full = true
		}
	}
	if full {
		s.mode.setFull(name)
	}
}

func memberChange(c delta.Change[memberKey, struct{}]) ipset.Change {
	if c.Op == delta.Delete {
		return ipset.DeleteEntry(c.Key.Entry)
	}
	return ipset.AddEntry(c.Key.Entry)
}
