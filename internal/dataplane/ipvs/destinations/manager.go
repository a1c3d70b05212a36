package destinations

import (
	"context"
	"errors"
	"iter"
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/delta"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// Kernel is the part of kernel/vserver that the manager uses.
type Kernel interface {
	ListDestinations(ctx context.Context, k vserver.ServerKey) (map[vserver.DestinationKey]vserver.Destination, error)
	Count(wanted map[vserver.DestinationKey]struct{}) vserver.Counting
	WriteDestinations(ctx context.Context, changes []vserver.DestinationChange) []error
}

// Frontends are the frontends in force.
type Frontends interface {
	Get(k model.FrontendKey) (model.Frontend, bool)
}

// Options describe a Manager.
type Options struct {
	Log       *zap.Logger
	Kernel    Kernel
	Frontends Frontends
	// Servers are the virtual servers, of which the manager reads the destinations.
	Servers delta.View[vserver.ServerKey, vserver.Server]
	// Node is the name of this node, from which the order of destinations follows.
	Node string
	// Wait keeps a destination from being written, and Hold from being deleted (prerequisites.go of the mode).
	Wait func(vserver.DestinationKey) bool
	Hold func(k vserver.DestinationKey, orphans bool) bool
	// ServerLost is called when a write shows that the server of a destination does not exist.
	ServerLost func(vserver.ServerKey)
}

// Manager owns the destinations of our virtual servers: the rows of the table "destinations", with
// what drains, what starts slowly, and the kernel's list of deleted destinations.
type Manager struct {
	*delta.Table[vserver.DestinationKey, vserver.Destination]

	log       *zap.Logger
	kernel    Kernel
	frontends Frontends
	servers   delta.View[vserver.ServerKey, vserver.Server]
	drains    drains
	slow      slowStart
	trash     trash
	order     destinationOrder
	// changed: some frontend changed since the last pass.
	changed bool
	// unjudged: the kernel was read, and what was found beside what is wanted is not drained yet.
	unjudged bool
}

// New returns a manager that wants no destination.
func New(o Options) *Manager {
	m := &Manager{
		log: o.Log, kernel: o.Kernel, frontends: o.Frontends, servers: o.Servers,
		drains: newDrains(), slow: newSlowStart(), order: newOrder(o.Node),
	}
	m.Table = delta.NewTable(&store{manager: m}, delta.Options[vserver.DestinationKey, vserver.Destination]{
		Name: "destinations", Compare: m.compare, Equal: func(a, b vserver.Destination) bool { return a == b }, KeyCodec: packedDestinations,
		Wait: o.Wait, Hold: o.Hold,
	})
	m.OnRefused(func(c delta.Change[vserver.DestinationKey, vserver.Destination], err error) {
		if errors.Is(err, vserver.ErrNotExist) {
			o.ServerLost(c.Key.Server)
		}
	})
	return m
}

// OnChange takes the destinations of one frontend from what it had to what it has. It changes only
// those that come, go or differ.
func (m *Manager) OnChange(c dataplane.Change) {
	m.changed = true
	m.order.forget()
	server, before, after := c.Key, backends(c.Old), backends(c.New)
	was, by := scale(c.Old), scale(c.New)
	m.slow.noteArrivals(c)
	for _, k := range m.drains.at(server) {
		if _, stays := weightOf(after, backendOf(k)); !stays {
			m.leave(k, c)
		}
	}
	for _, b := range before {
		if _, stays := weightOf(after, b.Addr); !stays {
			m.leave(Key(server, b.Addr), c)
		}
	}
	for _, b := range after {
		want := render(c.New, b.Weight*by)
		if weight, had := weightOf(before, b.Addr); had && render(c.Old, weight*was) == want {
			continue
		}
		k := Key(server, b.Addr)
		m.drains.end(k, dataplane.DrainBack)
		m.SetDesired(k, want)
	}
}

// Load reads the destinations of our servers.
func (m *Manager) Load(ctx context.Context) error {
	if _, err := m.Table.Load(ctx); err != nil {
		return err
	}
	m.unjudged = true
	m.noteLoad()
	return nil
}

// OnPass decides, before the rows of a pass are written, which drains end and which weights rise.
// toldAll means that all inputs could be read: only then what was found and is not wanted may be
// drained.
func (m *Manager) OnPass(ctx context.Context, now time.Time, toldAll bool) {
	if m.unjudged && toldAll {
		m.unjudged = false
		m.drainFound()
	}
	if m.drains.mayEnd(m.changed, now) {
		m.endDrains(ctx, now)
	}
	m.changed = false
	m.warm(now, toldAll)
}

// Due returns when OnPass has something to do although nothing changes; the zero time for never.
func (m *Manager) Due() time.Time {
	drains, slow := m.drains.due(), m.slow.due()
	if drains.IsZero() || !slow.IsZero() && slow.Before(drains) {
		return slow
	}
	return drains
}

// Drains returns counts of what drains and what starts slowly.
func (m *Manager) Drains() dataplane.Drains {
	return dataplane.Drains{Now: m.drains.count, Climbing: m.slow.count, Ended: maps.Clone(m.drains.ended), Trash: slices.Clone(dataplane.Trash(m.trash))}
}

// DrainingAt lists the destinations of one server that drain.
func (m *Manager) DrainingAt(k vserver.ServerKey) []vserver.DestinationKey { return m.drains.at(k) }

// Of iterates over the destinations that one server may have: those wanted, draining ones included,
// and left, which are to be deleted (Left). Each comes once.
func (m *Manager) Of(k vserver.ServerKey, left []vserver.DestinationKey) iter.Seq[vserver.DestinationKey] {
	return func(yield func(vserver.DestinationKey) bool) {
		for dk := range m.drains.of[k] {
			if !yield(dk) {
				return
			}
		}
		f, _ := m.frontends.Get(k)
		for _, b := range f.Backends {
			if !yield(Key(k, b.Addr)) {
				return
			}
		}
		for _, dk := range left {
			if !yield(dk) {
				return
			}
		}
	}
}

// Left sorts the destinations that are to be deleted by server.
func (m *Manager) Left() map[vserver.ServerKey][]vserver.DestinationKey {
	out := map[vserver.ServerKey][]vserver.DestinationKey{}
	for dk := range m.AllDeletes() {
		out[dk.Server] = append(out[dk.Server], dk)
	}
	return out
}

// OnServerLost records that a virtual server does not exist any more, and its destinations with it.
func (m *Manager) OnServerLost(k vserver.ServerKey) {
	for dk := range m.Of(k, m.Left()[k]) {
		m.DropActual(dk)
	}
}

// OnServersDeleted records that the destinations of deleted servers went with them.
func (m *Manager) OnServersDeleted() {
	var gone []vserver.DestinationKey
	for k := range m.AllDeletes() {
		if !m.servers.Known(k.Server) {
			gone = append(gone, k)
		}
	}
	had := 0
	for _, k := range gone {
		if _, there := m.Believed(k); there {
			had++
		}
		m.DropActual(k)
	}
	m.trash.add(had, time.Now())
}

// Inspect compares the destinations of one server, of which left are to be deleted, with the
// kernel, and returns how many drifted. A server that is gone has none.
func (m *Manager) Inspect(ctx context.Context, k vserver.ServerKey, left []vserver.DestinationKey) (int, error) {
	found, err := m.kernel.ListDestinations(ctx, k)
	if err != nil {
		return 0, err
	}
	drift := 0
	for dk, d := range found {
		if have, ok := m.Believed(dk); !ok || have != d {
			m.SetActual(dk, d)
			drift++
		}
	}
	for dk := range m.Of(k, left) {
		_, there := found[dk]
		if _, believed := m.Believed(dk); believed && !there {
			m.DropActual(dk)
			drift++
		}
	}
	return drift, nil
}

// store reads and writes destinations.
type store struct {
	manager *Manager
	batch   []vserver.DestinationChange // a buffer of the last Write, reused by the next
}

// List returns the destinations of the virtual servers that are ours.
func (s *store) List(ctx context.Context) (map[vserver.DestinationKey]vserver.Destination, error) {
	out := map[vserver.DestinationKey]vserver.Destination{}
	for k := range s.manager.servers.Actual() {
		found, err := s.manager.kernel.ListDestinations(ctx, k) // none of a server that is gone by now
		if err != nil {
			return nil, err
		}
		maps.Copy(out, found)
	}
	return out, nil
}

// Write hands all changes over in one batch.
func (s *store) Write(ctx context.Context, changes []delta.Change[vserver.DestinationKey, vserver.Destination]) []error {
	s.batch = slices.Grow(s.batch[:0], len(changes))
	for _, c := range changes {
		s.batch = append(s.batch, vserver.DestinationChange{Op: c.Op, Key: c.Key, Destination: c.Value})
	}
	errs := s.manager.kernel.WriteDestinations(ctx, s.batch)
	if n := s.deleted(changes, errs); n > 0 {
		s.manager.trash.add(n, time.Now())
	}
	return errs
}

// deleted counts the destinations that were deleted and are known to have been in place.
func (s *store) deleted(changes []delta.Change[vserver.DestinationKey, vserver.Destination], errs []error) int {
	n := 0
	for i, c := range changes {
		if c.Op != delta.Delete || delta.ErrorOf(errs, i) != nil {
			continue
		}
		if _, there := s.manager.Believed(c.Key); there {
			n++
		}
	}
	return n
}
