package servers

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/delta"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// Kernel is the part of kernel/vserver that the manager uses.
type Kernel interface {
	ListServers(ctx context.Context) (map[vserver.ServerKey]vserver.Server, error)
	GetServers(ctx context.Context, keys []vserver.ServerKey) (map[vserver.ServerKey]vserver.Server, error)
	WriteServers(ctx context.Context, changes []vserver.ServerChange) []error
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
	Hold      EntryWriter
	// Owned reports whether a server that was found is ours.
	Owned func(vserver.ServerKey) bool
	// Wait keeps a server from being written for now (prerequisites.go of the mode).
	Wait func(vserver.ServerKey) bool
	// Deleted is called after servers were deleted, with all their destinations.
	Deleted func()
}

// Manager owns the virtual servers: the rows of the table "servers". It is the stage of this table,
// for it bounds how many schedulers one pass changes, and activates servers after their
// destinations.
type Manager struct {
	*delta.Table[vserver.ServerKey, vserver.Server]

	log       *zap.Logger
	kernel    Kernel
	frontends Frontends
	hold      EntryWriter
	deleted   func()
	pacer     dataplane.Pacer
	staging   staging
}

// New returns a manager that wants no server.
func New(o Options) *Manager {
	m := &Manager{
		log: o.Log, kernel: o.Kernel, frontends: o.Frontends, hold: o.Hold, deleted: o.Deleted,
		staging: staging{created: map[vserver.ServerKey]struct{}{}},
	}
	m.Table = delta.NewTable(store{m}, delta.Options[vserver.ServerKey, vserver.Server]{
		Name: "servers", Compare: vserver.CompareServers, Equal: func(a, b vserver.Server) bool { return a == b }, Owned: o.Owned,
		Wait: func(k vserver.ServerKey) bool {
			return m.awaitsScheduler(k) != m.staging.activating || o.Wait(k) || m.paced(k)
		},
	})
	m.OnApplied(m.onApplied)
	return m
}

// OnChange wants the server of a frontend that came or changed, and none of one that went.
func (m *Manager) OnChange(c dataplane.Change) {
	if c.New == nil {
		m.DeleteDesired(c.Key)
		return
	}
	m.SetDesired(c.Key, render(c.New))
}

func render(f *model.Frontend) vserver.Server {
	s := vserver.Server{Scheduler: f.Scheduler.Name(), Flags: f.Scheduler.KernelFlags()}
	if f.Affinity > 0 {
		s.Flags |= vserver.FlagPersistent
		s.Timeout = uint32(f.Affinity / time.Second)
	}
	if f.OnePacket {
		s.Flags |= vserver.FlagOnePacket
	}
	return s
}

// Paced returns how many changes of schedulers the last pass left to the next.
func (m *Manager) Paced() int { return m.pacer.Held() }

// paced reports whether a server has to wait for its turn to get another scheduler.
func (m *Manager) paced(k vserver.ServerKey) bool {
	want, _ := m.Desired(k)
	return m.changesScheduler(k, want) && !m.pacer.Admit()
}

// ApplyUpdates writes servers, and of those with another scheduler as many as one pass has time
// for.
func (m *Manager) ApplyUpdates(ctx context.Context, p delta.Pass) delta.Outcome {
	return m.pacer.Run(ctx, p, m.Table.ApplyUpdates)
}

// ApplyDeletes deletes servers.
func (m *Manager) ApplyDeletes(ctx context.Context, p delta.Pass) delta.Outcome {
	out := m.Table.ApplyDeletes(ctx, p)
	if out.Deletes > 0 {
		m.deleted()
	}
	return out
}

// store reads and writes virtual servers.
type store struct{ manager *Manager }

// List returns the virtual servers of the whole network namespace.
func (s store) List(ctx context.Context) (map[vserver.ServerKey]vserver.Server, error) {
	return s.manager.kernel.ListServers(ctx)
}

// Write hands all changes over in one batch.
func (s store) Write(ctx context.Context, changes []delta.Change[vserver.ServerKey, vserver.Server]) []error {
	m := s.manager
	clear(m.staging.created)
	batch := make([]vserver.ServerChange, len(changes))
	for i, c := range changes {
		batch[i] = vserver.ServerChange{Op: c.Op, Key: c.Key, Server: c.Value, Staged: c.Op == delta.Add && m.staged(c.Key)}
	}
	defer m.quiesce(ctx, changes)()
	errs := m.writeStaged(ctx, batch)
	for i := range batch {
		if batch[i].Staged && delta.ErrorOf(errs, i) == nil {
			m.staging.created[batch[i].Key] = struct{}{}
		}
	}
	return errs
}
