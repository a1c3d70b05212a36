package ipvs

import (
	"cmp"
	"context"
	"errors"

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
}

// List returns the entries of all our sets that exist in the right shape. The
// entries of another shape go with their set.
func (s memberStore) List(ctx context.Context) (map[memberKey]struct{}, error) {
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

func (s memberStore) collect(ctx context.Context, name string, into map[memberKey]struct{}) error {
	_, entries, err := s.sets.List(ctx, name)
	if errors.Is(err, ipset.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		into[memberKey{name, e}] = struct{}{}
	}
	return err
}

// Write hands each run of one set to the kernel in one call.
func (s memberStore) Write(ctx context.Context, changes []delta.Change[memberKey, struct{}]) []error {
	var errs []error
	for start := 0; start < len(changes); {
		name := changes[start].Key.Set
		end := start
		for end < len(changes) && changes[end].Key.Set == name {
			end++
		}
		batch := make([]ipset.Change, 0, end-start)
		for _, c := range changes[start:end] {
			batch = append(batch, memberChange(c))
		}
		full := false
		for i, err := range s.sets.Write(ctx, s.mode.catalogue.sets[name], batch) {
			if err == nil {
				continue
			}
			switch {
			case errors.Is(err, ipset.ErrNotExist):
				s.mode.setLost(name)
			case errors.Is(err, ipset.ErrFull):
				full = true
			}
			if errs == nil {
				errs = make([]error, len(changes))
			}
			errs[start+i] = err
		}
		if full {
			s.mode.setFull(name)
		}
		start = end
	}
	return errs
}

func memberChange(c delta.Change[memberKey, struct{}]) ipset.Change {
	if c.Op == delta.Delete {
		return ipset.DeleteEntry(c.Key.Entry)
	}
	return ipset.AddEntry(c.Key.Entry)
}
