package ipvs

import (
	"context"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/sets"
	"github.com/kube-ipvs/kube-ipvs/internal/delta"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/ipset"
)

// Between the old scheduler and the new one a server has none, for as long as the kernel
// waits (see pace), and then ip_vs_schedule finds no destination: the kernel refuses a client
// that connects in that moment. So its SYN is dropped instead: while a group of schedulers is
// changed, their servers are in a set whose new connections are dropped, and TCP and SCTP try
// again after a second. UDP does not try again, so it is not held. A host that dials an address
// of its own other than a cluster IP is not held.
//
// The entries expire by themselves (sets.HoldSeconds). A process that the scheduler of processes
// leaves out, or that dies, between the two writes drops no connection for longer, and the
// first retry after it goes through.

// reschedules tells whether a server that is there loses a scheduler to get another: only
// then the kernel waits.
func (m *Mode) reschedules(k vserver.ServerKey, want vserver.Server) bool {
	have, there := m.servers.Believed(k)
	return there && have.Scheduler != want.Scheduler && have.Scheduler != vserver.SchedulerNone
}

// hold keeps new connections away from the servers among changes that get another
// scheduler, until release is called.
func (m *Mode) hold(ctx context.Context, changes []delta.Change[vserver.ServerKey, vserver.Server]) (release func()) {
	held := map[string][]ipset.Change{}
	for _, c := range changes {
		if m.reschedules(c.Key, c.Value) && c.Key.Protocol != vserver.ProtocolUDP {
			set := sets.Name(model.FamilyOf(c.Key.Addr), sets.Hold)
			held[set] = append(held[set], ipset.AddEntry(ipset.IPPort(c.Key.Addr, uint8(c.Key.Protocol), c.Key.Port)))
		}
	}
	for set, list := range held {
		m.deps.Sets.Write(ctx, m.sets.Set(set), list) // what is not added is not held, and that is all
	}
	return func() { m.release(ctx, held) }
}

// releaseWithin bounds the end of holding, which even a process that is told to end
// sees to.
const releaseWithin = 5 * time.Second

// release lets new connections in again. An entry that cannot be deleted expires.
func (m *Mode) release(ctx context.Context, held map[string][]ipset.Change) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseWithin)
	defer cancel()
	for set, list := range held {
		for i := range list {
			list[i].Op = ipset.OpDelete
		}
		m.deps.Sets.Write(ctx, m.sets.Set(set), list)
	}
}
