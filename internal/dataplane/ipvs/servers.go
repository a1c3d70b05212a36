package ipvs

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/delta"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/link"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
)

var serverOps = map[delta.Op]vserver.Op{delta.Add: vserver.Add, delta.Update: vserver.Update, delta.Delete: vserver.Delete}

// serverStore reads and writes virtual servers.
type serverStore struct {
	mode    *Mode
	servers Servers
}

// List returns the virtual servers of the whole namespace.
func (s serverStore) List(ctx context.Context) (map[vserver.ServerKey]vserver.Server, error) {
	return s.servers.ListServers(ctx)
}

// Write hands all changes over in one batch.
func (s serverStore) Write(ctx context.Context, changes []delta.Change[vserver.ServerKey, vserver.Server]) []error {
	batch := make([]vserver.ServerChange, len(changes))
	for i, c := range changes {
		batch[i] = vserver.ServerChange{Op: serverOps[c.Op], Key: c.Key, Server: c.Value, Staged: c.Op == delta.Add && s.mode.staged(c.Key)}
	}
	defer s.mode.hold(ctx, changes)()
	errs := s.mode.writeServers(ctx, batch)
	for i, c := range changes {
		switch {
		case failure(errs, i) != nil:
		case c.Op == delta.Delete:
			s.mode.flows.stale(c.Key)
		case c.Op == delta.Add:
			s.mode.flows.began(c.Key)
		}
		if batch[i].Staged && failure(errs, i) == nil {
			s.mode.staging.made = append(s.mode.staging.made, c.Key)
		}
	}
	return errs
}

// destinationStore reads and writes destinations.
type destinationStore struct {
	mode    *Mode
	servers Servers
	batch   []vserver.DestinationChange // of the last Write, to be used again
}

// List returns the destinations of the virtual servers that are ours.
func (s *destinationStore) List(ctx context.Context) (map[vserver.DestinationKey]vserver.Destination, error) {
	out := map[vserver.DestinationKey]vserver.Destination{}
	for k := range s.mode.servers.Actual() {
		found, err := s.servers.ListDestinations(ctx, k) // none of one that went meanwhile
		if err != nil {
			return nil, err
		}
		for dk, d := range found {
			out[dk] = d
		}
	}
	return out, nil
}

// Write hands all changes over in one batch. A destination without its server
// tells that the server was lost: it becomes pending again with all it had.
func (s *destinationStore) Write(ctx context.Context, changes []delta.Change[vserver.DestinationKey, vserver.Destination]) []error {
	s.batch = slices.Grow(s.batch[:0], len(changes))
	for _, c := range changes {
		s.batch = append(s.batch, vserver.DestinationChange{Op: serverOps[c.Op], Key: c.Key, Destination: c.Value})
	}
	errs := s.servers.WriteDestinations(ctx, s.batch)
	if n := s.deleted(changes, errs); n > 0 {
		s.mode.trash.add(n, time.Now())
	}
	for i, c := range changes {
		switch err := failure(errs, i); {
		case errors.Is(err, vserver.ErrNotExist):
			s.mode.serverLost(c.Key.Server)
		case err != nil || c.Op == delta.Update:
		case c.Op == delta.Add:
			s.mode.flows.fresh(c.Key)
		default:
			s.mode.flows.stale(c.Key.Server)
		}
	}
	return errs
}

// deleted counts the destinations that were deleted and are known to have been there.
func (s *destinationStore) deleted(changes []delta.Change[vserver.DestinationKey, vserver.Destination], errs []error) int {
	n := 0
	for i := range changes {
		if changes[i].Op != delta.Delete || failure(errs, i) != nil {
			continue
		}
		if _, there := s.mode.destinations.Believed(changes[i].Key); there {
			n++
		}
	}
	return n
}

// failure is that of one row; a batch without any may have no list.
func failure(errs []error, i int) error {
	if i >= len(errs) {
		return nil
	}
	return errs[i]
}

// serverStage is the servers' table; the kernel drops the destinations of a
// deleted server, so they are dropped from memory instead of one by one.
type serverStage struct {
	*delta.Table[vserver.ServerKey, vserver.Server]
	mode *Mode
}

// ApplyUpdates writes servers, and of those with another scheduler as many as one pass
// has time for.
func (s serverStage) ApplyUpdates(ctx context.Context, p delta.Pass) delta.Outcome {
	var out delta.Outcome
	pace := &s.mode.pace
	for ; ; p.Retry = false { // what failed rests
		pace.begin()
		group := s.Table.ApplyUpdates(ctx, p)
		out = out.Plus(group)
		s.mode.noteStaged()
		if pace.held == 0 {
			return out
		}
		pace.adapt(group.Took)
		if out.Took > pacePass || ctx.Err() != nil {
			return out
		}
	}
}

// paced tells whether a server has to wait for its turn to get another scheduler.
func (m *Mode) paced(k vserver.ServerKey) bool {
	want, _ := m.servers.Desired(k)
	return m.reschedules(k, want) && !m.pace.admit()
}

// ApplyDeletes deletes servers, and forgets what went with them.
func (s serverStage) ApplyDeletes(ctx context.Context, p delta.Pass) delta.Outcome {
	out := s.Table.ApplyDeletes(ctx, p)
	s.mode.leftovers = nil
	if out.Deletes > 0 {
		s.mode.forgetDestinations()
	}
	return out
}

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
		if c.Op != delta.Delete && failure(errs, i) == nil {
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
