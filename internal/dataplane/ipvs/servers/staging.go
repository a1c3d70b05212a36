package servers

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/delta"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
)

// A server that is filled under its scheduler serves from its first destination on: for a moment
// all clients meet a few of many destinations. So a server with many destinations is created
// without a scheduler (vserver.SchedulerNone) and filled. It is activated after a write of each
// destination was tried, and before any address is bound; until then a client is refused, as by an
// empty server. A destination that the kernel refuses does not block the activation.
//
// No memory of this is needed: a row that is wanted under a scheduler and has none is a row to
// update, and its turn is after the destinations. So the next process completes whatever a process
// leaves behind that dies in between.
//
// Activation costs one message a server and no grace period of RCU, so it is neither paced nor
// quiesced.

const (
	// manyDestinations is the number of destinations from which on a server is staged: its
	// message is then no more than a sixteenth of those it costs anyway. With fewer, clients
	// meet a part of the destinations for less than half a millisecond: 5 to 30 us each.
	manyDestinations = 16
	// manyUnderMaglev is the same number for mh, which builds its table for each destination
	// that is added (ip_vs_mh_add_dest): 0.5 to 1 ms, against one message.
	manyUnderMaglev = 2
)

// activateTimeout bounds the activation in a stopping process: otherwise servers with destinations
// would stay without a scheduler.
const activateTimeout = time.Second

// staging is the state of servers that are created without a scheduler.
type staging struct {
	// created are those of the write in progress.
	created map[vserver.ServerKey]struct{}
	// activating: filled servers are updated, and no others.
	activating bool
	// unsupported: this kernel refuses them, and every server is created under its scheduler.
	unsupported bool
}

// staged reports whether a server is to be created without its scheduler.
func (m *Manager) staged(k vserver.ServerKey) bool {
	f, ok := m.frontends.Get(k)
	if !ok || m.staging.unsupported {
		return false
	}
	return len(f.Backends) >= manyDestinations || f.Scheduler.Name() == "mh" && len(f.Backends) >= manyUnderMaglev
}

// awaitsScheduler reports whether a server has no scheduler yet.
func (m *Manager) awaitsScheduler(k vserver.ServerKey) bool {
	have, there := m.Believed(k)
	want, _ := m.Desired(k)
	return there && have.Scheduler == vserver.SchedulerNone && want.Scheduler != vserver.SchedulerNone
}

// writeStaged writes a batch and learns whether the kernel can stage. A kernel whose module was
// loaded a moment ago refuses the first call with the same error, so the call is repeated once.
func (m *Manager) writeStaged(ctx context.Context, batch []vserver.ServerChange) []error {
	errs := m.kernel.WriteServers(ctx, batch)
	for _, plain := range []bool{false, true} {
		var refused []int
		var rows []vserver.ServerChange
		for i, err := range errs {
			if errors.Is(err, vserver.ErrNoStaging) {
				batch[i].Staged = !plain
				refused, rows = append(refused, i), append(rows, batch[i])
			}
		}
		if len(rows) == 0 {
			return errs
		}
		if plain {
			m.staging.unsupported = true
			m.log.Info("virtual servers take traffic before all destinations are in: the kernel has no virtual servers without a scheduler", zap.Error(errs[refused[0]]))
		}
		again := m.kernel.WriteServers(ctx, rows)
		for j, i := range refused {
			errs[i] = delta.ErrorOf(again, j)
		}
	}
	return errs
}

// onApplied records that a server which was just created staged has no scheduler yet, which makes
// it a row to update.
func (m *Manager) onApplied(e delta.Applied[vserver.ServerKey, vserver.Server]) {
	if _, created := m.staging.created[e.Key]; !created {
		return
	}
	delete(m.staging.created, e.Key)
	have := e.Value
	have.Scheduler = vserver.SchedulerNone
	m.SetActual(e.Key, have)
}

// Publish implements dataplane.Publisher: it gives filled servers their scheduler.
func (m *Manager) Publish(ctx context.Context, p delta.Pass) delta.Outcome {
	if ctx.Err() != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), activateTimeout)
		defer cancel()
	}
	m.staging.activating = true
	defer func() { m.staging.activating = false }()
	return m.Table.ApplyUpdates(ctx, p)
}
