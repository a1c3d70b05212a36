package addresses

import (
	"context"
	"errors"
	"net/netip"
	"slices"

	"github.com/kube-ipvs/kube-ipvs/internal/delta"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/link"
)

// addressStore binds and unbinds addresses on kube-ipvs0.
type addressStore struct {
	links Kernel
}

// List returns the addresses on the link; none while the link is missing.
func (s addressStore) List(ctx context.Context) (map[netip.Addr]struct{}, error) {
	return List(ctx, s.links)
}

// List returns the addresses on the link; none while the link is missing.
func List(ctx context.Context, links Kernel) (map[netip.Addr]struct{}, error) {
	found, err := links.List(ctx)
	if errors.Is(err, link.ErrNotExist) {
		return map[netip.Addr]struct{}{}, nil
	}
	return found, err
}

// Write hands all changes over in one batch. A device that is gone is made again.
func (s addressStore) Write(ctx context.Context, changes []delta.Change[netip.Addr, struct{}]) []error {
	batch := make([]link.Change, len(changes))
	for i, c := range changes {
		batch[i] = link.Change{Op: linkOp(c.Op), Addr: c.Key}
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

// routeStore reads and writes local routes.
type routeStore struct {
	links Kernel
}

// List returns those that are ours.
func (s routeStore) List(ctx context.Context) (map[netip.Prefix]struct{}, error) {
	return s.links.ListRoutes(ctx)
}

// Write hands all changes over in one batch.
func (s routeStore) Write(ctx context.Context, changes []delta.Change[netip.Prefix, struct{}]) []error {
	batch := make([]link.RouteChange, len(changes))
	for i, c := range changes {
		batch[i] = link.RouteChange{Op: linkOp(c.Op), Prefix: c.Key}
	}
	return s.links.WriteRoutes(ctx, batch)
}

// detachedStore detaches addresses.
type detachedStore struct {
	links Kernel
}

// List returns those that are detached; false is in part.
func (s detachedStore) List(ctx context.Context) (map[netip.Addr]bool, error) {
	return s.links.ListDetached(ctx)
}

// Write hands all changes over in one batch.
func (s detachedStore) Write(ctx context.Context, changes []delta.Change[netip.Addr, bool]) []error {
	batch := make([]link.Change, len(changes))
	for i, c := range changes {
		batch[i] = link.Change{Op: linkOp(c.Op), Addr: c.Key}
	}
	return s.links.WriteDetached(ctx, batch)
}

// linkOp returns the operation on a link that leads to a row: an update adds what is missing.
func linkOp(op delta.Op) link.Op {
	if op == delta.Delete {
		return link.Delete
	}
	return link.Add
}
