package sets

import (
	"context"
	"errors"
	"slices"

	"github.com/kube-ipvs/kube-ipvs/internal/delta"
	"github.com/kube-ipvs/kube-ipvs/ipset"
)

// memberStore writes entries, many of one set at a time.
type memberStore struct {
	manager *Manager
	kernel  Kernel
	// changes and batches are buffers of the last Write, reused by the next.
	changes []ipset.Change
	batches []ipset.Batch
}

// List returns the entries of all our sets that exist in the right shape. The
// entries of another shape go with their set.
func (s *memberStore) List(ctx context.Context) (map[Key]struct{}, error) {
	out := map[Key]struct{}{}
	for name, found := range s.manager.Sets.Actual() {
		if !sameShape(found, s.manager.registry.sets[name]) {
			continue
		}
		if err := s.collect(ctx, name, out); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (s *memberStore) collect(ctx context.Context, name string, into map[Key]struct{}) error {
	_, entries, err := s.kernel.List(ctx, name)
	if errors.Is(err, ipset.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		into[Key{name, e}] = struct{}{}
	}
	return err
}

// Write hands the entries of all sets to the kernel in one call: they come sorted by set.
func (s *memberStore) Write(ctx context.Context, changes []delta.Change[Key, struct{}]) []error {
	s.changes, s.batches = slices.Grow(s.changes[:0], len(changes)), s.batches[:0]
	for first, i := 0, 0; i < len(changes); i++ {
		s.changes = append(s.changes, memberChange(changes[i]))
		if set := changes[i].Key.Set; i+1 == len(changes) || changes[i+1].Key.Set != set {
			s.batches = append(s.batches, ipset.Batch{Set: s.manager.registry.sets[set], Changes: s.changes[first:]})
			first = i + 1
		}
	}
	errs := make([]error, 0, len(changes))
	for i, of := range s.kernel.WriteAll(ctx, s.batches...) {
		if of == nil {
			of = make([]error, len(s.batches[i].Changes))
		}
		errs = append(errs, s.withoutGone(s.batches[i], of)...)
	}
	return errs
}

// withoutGone clears the errors of entries that were to be deleted from a set that does not exist,
// perhaps because it was never created: they are gone. The other entries of the set are lost.
func (s *memberStore) withoutGone(b ipset.Batch, errs []error) []error {
	for i, err := range errs {
		if b.Changes[i].Op == ipset.OpDelete && errors.Is(err, ipset.ErrNotExist) {
			s.manager.lost(b.Set.Name)
			errs[i] = nil
		}
	}
	return errs
}

func memberChange(c delta.Change[Key, struct{}]) ipset.Change {
	if c.Op == delta.Delete {
		return ipset.DeleteEntry(c.Key.Entry)
	}
	return ipset.AddEntry(c.Key.Entry)
}
