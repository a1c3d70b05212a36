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

// Write hands each run of one set to the kernel in one call. Once one is not answered in
// time the rest is not tried: each would cost its deadline.
func (s memberStore) Write(ctx context.Context, changes []delta.Change[memberKey, struct{}]) []error {
	errs := make([]error, len(changes))
	var silence error
	for start := 0; start < len(changes); {
		name := changes[start].Key.Set
		end := start
		for end < len(changes) && changes[end].Key.Set == name {
			end++
		}
		if silence == nil {
			silence = s.writeSet(ctx, name, changes[start:end], errs[start:end])
		} else {
			for i := start; i < end; i++ {
				errs[i] = notTried(name, silence)
			}
		}
		start = end
	}
	return errs
}

// writeSet changes entries of one set and notes the error of each. It returns one that
// says that there was no answer.
func (s memberStore) writeSet(ctx context.Context, name string, changes []delta.Change[memberKey, struct{}], errs []error) (silence error) {
	batch := make([]ipset.Change, 0, len(changes))
	for _, c := range changes {
		batch = append(batch, memberChange(c))
	}
	copy(errs, s.sets.Write(ctx, s.mode.catalogue.sets[name], batch))
	full := false
	for _, err := range errs {
		switch {
		case errors.Is(err, ipset.ErrNotExist):
			s.mode.setLost(name)
		case errors.Is(err, ipset.ErrFull):
			full = true
		case unanswered(err):
			silence = err
		}
	}
	if full {
		s.mode.setFull(name)
	}
	return silence
}

func memberChange(c delta.Change[memberKey, struct{}]) ipset.Change {
	if c.Op == delta.Delete {
		return ipset.DeleteEntry(c.Key.Entry)
	}
	return ipset.AddEntry(c.Key.Entry)
}
