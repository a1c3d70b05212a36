package ipvs

import (
	"context"
	"errors"
	"net/netip"
	"slices"

	"github.com/kube-ipvs/kube-ipvs/internal/delta"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/link"
)

import ()

// addressStore binds and unbinds addresses on kube-ipvs0.
type addressStore struct {
	mode  *Mode
	links Links
}

// List returns the addresses on the link; none while the link is missing.
func (s addressStore) List(ctx context.Context) (map[netip.Addr]struct{}, error) {
	found, err := s.links.List(ctx)
	if errors.Is(err, link.ErrNotExist) {
		return map[netip.Addr]struct{}{}, nil
	}
	return found, err
}

// Write hands all changes over in one batch. A device that is gone is made again.
func (s addressStore) Write(ctx context.Context, changes []delta.Change[netip.Addr, struct{}]) []error {
	errs := s.write(ctx, changes)
	s.mode.boundAgain(changes, errs)
	for i, c := range changes {
		if c.Op != delta.Delete && delta.ErrorOf(errs, i) == nil {
			s.mode.addressAdded(c.Key)
		}
	}
	return errs
}

func (s addressStore) write(ctx context.Context, changes []delta.Change[netip.Addr, struct{}]) []error {
	batch := make([]link.Change, len(changes))
	for i, c := range changes {
		batch[i] = link.Change{Op: link.Add, Addr: c.Key}
		if c.Op == delta.Delete {
			batch[i].Op = link.Delete
		}
	}
	errs := s.links.Write(ctx, batch)
	if !slices.ContainsFunc(errs, func(err error) bool { return errors.Is(err, link.ErrNotExist) }) {
		return errs
	}
	if _, err := s.links.Ensure(ctx); err != nil {
		return errs
	}
	return s.links.Write(ctx, batch)
}
