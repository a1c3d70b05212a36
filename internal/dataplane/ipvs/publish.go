package ipvs

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/delta"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
)

// A server that is filled under its scheduler serves from its first destination on: for a
// moment all clients meet a few of many. So one with many is made without a scheduler
// (vserver.SchedulerNone), filled, and switched on when all its destinations have been
// tried, before any address is bound; until then a client is refused, as by an empty one.
// A destination that the kernel refuses does not keep the others dark.
//
// No memory of this is needed: a row that is wanted under a scheduler and has none is one
// to update, and its turn is after the destinations. So whatever a process leaves behind
// that dies in between, the next one finds filled less than it is wanted, fills it, and
// switches it on.
//
// To switch on costs one message a server and no grace period (see pace), so it is neither
// paced nor held.

const (
	// manyDestinations is from where on a server is staged: its message is then no more
	// than a sixteenth of those it costs anyway. With fewer, clients meet a part of the
	// destinations for less than half a millisecond: 5 to 30 us each.
	manyDestinations = 16
	// manyUnderMaglev is the same of mh, which builds its table anew for each destination
	// that comes (ip_vs_mh_add_dest): 0.5 to 1 ms, against one message.
	manyUnderMaglev = 2
)

// publishWithin bounds the switch of a process that was told to end before it: it would
// leave servers dark that have destinations.
const publishWithin = time.Second

// staged tells whether a server that is to be made is made without its scheduler.
func (m *Mode) staged(k vserver.ServerKey) bool {
	f, ok := m.frontends.Get(k)
	if !ok || m.staging.refused {
		return false
	}
	return len(f.Backends) >= manyDestinations || f.Scheduler.Name() == "mh" && len(f.Backends) >= manyUnderMaglev
}

// staging is what is known of servers that are made without a scheduler.
type staging struct {
	// made are those of the stage that runs.
	made []vserver.ServerKey
	// publishing: it is the turn of those that are filled.
	publishing bool
	// refused: this kernel cannot, and every server is made under its scheduler.
	refused bool
}

// filling tells whether a server has no scheduler yet.
func (m *Mode) filling(k vserver.ServerKey) bool {
	have, there := m.servers.Believed(k)
	want, _ := m.servers.Desired(k)
	return there && have.Scheduler == vserver.SchedulerNone && want.Scheduler != vserver.SchedulerNone
}

// writeServers writes a batch and learns whether the kernel can stage. A kernel whose
// module was loaded anew refuses the first call with the same word, so it is asked twice.
func (m *Mode) writeServers(ctx context.Context, batch []vserver.ServerChange) []error {
	errs := m.deps.Servers.WriteServers(ctx, batch)
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
			m.staging.refused = true
			m.log.Info("virtual servers serve while they are filled: the kernel makes none without a scheduler", zap.Error(errs[refused[0]]))
		}
		again := m.deps.Servers.WriteServers(ctx, rows)
		for j, i := range refused {
			errs[i] = failure(again, j)
		}
	}
	return errs
}

// noteStaged records that the servers just made have no scheduler yet, which makes them
// rows to update.
func (m *Mode) noteStaged() {
	for _, k := range m.staging.made {
		if have, there := m.servers.Believed(k); there {
			have.Scheduler = vserver.SchedulerNone
			m.servers.SetActual(k, have)
		}
	}
	m.staging.made = nil
}

// Publish implements dataplane.Publisher: it gives servers their scheduler.
func (s serverStage) Publish(ctx context.Context, p delta.Pass) delta.Outcome {
	if ctx.Err() != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), publishWithin)
		defer cancel()
	}
	s.mode.staging.publishing = true
	defer func() { s.mode.staging.publishing = false }()
	return s.Table.ApplyUpdates(ctx, p)
}
