package sets

import (
	"context"
	"errors"
	"fmt"

	"github.com/kube-ipvs/kube-ipvs/internal/delta"
	"github.com/kube-ipvs/kube-ipvs/ipset"
)

// setStore creates, replaces and destroys sets.
type setStore struct {
	manager *Manager
	kernel  Kernel
}

// List returns our sets.
func (s setStore) List(ctx context.Context) (map[string]ipset.Set, error) {
	found, err := s.kernel.ListSets(ctx)
	if err != nil {
		return nil, err
	}
	out := map[string]ipset.Set{}
	for _, set := range found {
		if !s.manager.registry.owned(set.Name) {
			continue
		}
		out[set.Name] = set
		bigger := s.manager.registry.sets[set.Name]
		bigger.MaxElem = set.MaxElem
		if sameSet(bigger, set) {
			s.manager.raise(set.Name, set.MaxElem)
		}
	}
	return out, nil
}

// Write creates sets together, which come first, and replaces and destroys others one by one:
// there are some forty. Once one is not answered in time the rest is left out: each would cost its deadline.
func (s setStore) Write(ctx context.Context, changes []delta.Change[string, ipset.Set]) []error {
	errs := make([]error, len(changes))
	made := s.createAll(ctx, changes)
	var silence error
	for i, c := range changes {
		switch {
		case silence != nil:
			errs[i] = notTried(c.Key, silence)
			continue
		case c.Op == delta.Add:
			errs[i] = s.created(ctx, c.Value, made[c.Key])
		default:
			errs[i] = s.change(ctx, c)
		}
		if unanswered(errs[i]) {
			silence = errs[i]
		}
	}
	return errs
}

// createAll creates the sets to be added, and returns the results of those that failed.
func (s setStore) createAll(ctx context.Context, changes []delta.Change[string, ipset.Set]) map[string]error {
	var sets []ipset.Set
	for _, c := range changes {
		if c.Op == delta.Add {
			sets = append(sets, c.Value)
		}
	}
	failed := map[string]error{}
	for i, err := range s.kernel.CreateAll(ctx, sets...) {
		failed[sets[i].Name] = err
	}
	return failed
}

// unanswered reports whether a call reached its deadline.
func unanswered(err error) bool { return errors.Is(err, context.DeadlineExceeded) }

// notTried is the error of a set that was left out because another one was not answered.
func notTried(set string, silence error) error {
	return fmt.Errorf("set %s: not tried: %w", set, silence)
}

func (s setStore) change(ctx context.Context, c delta.Change[string, ipset.Set]) error {
	if c.Op == delta.Update {
		return s.replace(ctx, c.Value)
	}
	return s.destroy(ctx, c.Key)
}

// created completes the creation of a set: one that exists already may have another shape.
func (s setStore) created(ctx context.Context, set ipset.Set, err error) error {
	if !errors.Is(err, ipset.ErrExist) {
		return err
	}
	found, _, err := s.kernel.List(ctx, set.Name)
	if err == nil && sameSet(found, set) {
		return nil
	}
	return s.replace(ctx, set)
}

// replace swaps a set of the wrong shape for one of the right shape, with the
// entries that are wanted and those that are not to go yet. The kernel refuses
// that while a rule refers to a set of another type, so our own rules are taken
// out first; the chains' stage, which follows, puts them back.
func (s setStore) replace(ctx context.Context, set ipset.Set) error {
	wanted, rest := s.manager.entriesOf(set.Name)
	entries := append(wanted, rest...)
	err := s.kernel.Replace(ctx, set, entries)
	if errors.Is(err, ipset.ErrBusy) {
		if err := s.manager.release(ctx, set.Name); err != nil {
			return fmt.Errorf("replace set %s: %w", set.Name, err)
		}
		err = s.kernel.Replace(ctx, set, entries)
	}
	if err != nil {
		return err
	}
	for _, e := range wanted {
		s.manager.Members.SetActual(Key{set.Name, e}, struct{}{})
	}
	return nil
}

func (s setStore) destroy(ctx context.Context, name string) error {
	err := s.kernel.Destroy(ctx, name)
	if errors.Is(err, ipset.ErrNotExist) {
		err = nil
	}
	if err == nil {
		s.manager.forgetMembers(name)
	}
	return err
}
