package servers

import (
	"context"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/sets"
	"github.com/kube-ipvs/kube-ipvs/internal/delta"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/internal/netkey"
	"github.com/kube-ipvs/kube-ipvs/ipset"
)

// While the kernel replaces the scheduler of a server, the server has none, for as long as the
// kernel waits (dataplane.Pacer). ip_vs_schedule then finds no destination, and the kernel refuses
// a client that connects in that moment. So its SYN is dropped instead. While the schedulers of a
// group change, their servers are in the set KUBE-HOLD, whose new connections are dropped, and TCP
// and SCTP send again after a second. UDP does not try again, so its servers are left out. A host
// that dials an address of its own other than a cluster IP is not affected.
//
// The entries expire by themselves (sets.HoldSeconds). So a process that dies between the two
// writes drops no connection for longer, and the first retry after it succeeds. A group takes a
// quarter of a second (dataplane.Pacer); where the kernel needs longer, clients are refused
// meanwhile.

// EntryWriter is the part of the sets that quiescing uses.
type EntryWriter interface {
	// WriteHold adds and deletes entries of KUBE-HOLD of a family. An entry that is not written
	// is not reported: its server is not quiesced.
	WriteHold(ctx context.Context, f netkey.Family, changes []ipset.Change)
}

// changesScheduler reports whether a server in place loses a scheduler to get another: only then
// the kernel waits.
func (m *Manager) changesScheduler(k vserver.ServerKey, want vserver.Server) bool {
	have, there := m.Believed(k)
	return there && have.Scheduler != want.Scheduler && have.Scheduler != vserver.SchedulerNone
}

// quiesce keeps new connections away from the servers among changes that get another scheduler,
// until the returned function is called.
func (m *Manager) quiesce(ctx context.Context, changes []delta.Change[vserver.ServerKey, vserver.Server]) (release func()) {
	held := map[netkey.Family][]ipset.Change{}
	for _, c := range changes {
		if m.changesScheduler(c.Key, c.Value) && c.Key.Protocol != netkey.UDP {
			f := c.Key.Family()
			held[f] = append(held[f], ipset.AddEntry(sets.IPPort(c.Key)))
		}
	}
	for f, list := range held {
		m.hold.WriteHold(ctx, f, list)
	}
	return func() { m.release(ctx, held) }
}

// releaseTimeout bounds the end of quiescing, for which even a stopping process waits.
const releaseTimeout = 5 * time.Second

// release lets new connections in again. An entry that cannot be deleted expires.
func (m *Manager) release(ctx context.Context, held map[netkey.Family][]ipset.Change) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	for f, list := range held {
		for i := range list {
			list[i].Op = ipset.OpDelete
		}
		m.hold.WriteHold(ctx, f, list)
	}
}
