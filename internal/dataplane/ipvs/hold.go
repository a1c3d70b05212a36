package ipvs

import (
	"context"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/delta"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/ipset"
)

// Between the old scheduler and the new one a server has none, for as long as the
// kernel waits (see pace), and then ip_vs_schedule finds no destination: a client that
// comes in that moment is refused. So it is not let in: while a group of schedulers is
// changed, their servers are in the set whose new connections are dropped, and TCP and
// SCTP try again after a second. UDP does not, so it keeps its chance to be told. A host
// that dials an address of its own other than a cluster IP is not held.

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
		if !m.reschedules(c.Key, c.Value) || c.Key.Protocol == vserver.ProtocolUDP {
			continue
		}
		k := memberKey{setName(model.FamilyOf(c.Key.Addr), setNoLocal), ipset.IPPort(c.Key.Addr, c.Key.Protocol, c.Key.Port)}
		if !m.members.Known(k) { // else it is there for another reason, and stays
			held[k.Set] = append(held[k.Set], ipset.AddEntry(k.Entry))
		}
	}
	for set, list := range held {
		m.deps.Sets.Write(ctx, m.catalogue.sets[set], list) // what is not added is not held, and that is all
	}
	return func() { m.release(ctx, held) }
}

// releaseWithin bounds the end of holding, which even a process that is told to end
// sees to.
const releaseWithin = 5 * time.Second

// release lets new connections in again. What cannot be deleted is left to the deletions
// of this pass and of those that follow.
func (m *Mode) release(ctx context.Context, held map[string][]ipset.Change) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseWithin)
	defer cancel()
	for set, list := range held {
		for i := range list {
			list[i].Op = ipset.OpDelete
		}
		for i, err := range m.deps.Sets.Write(ctx, m.catalogue.sets[set], list) {
			if err != nil {
				m.log.Warn("new connections still held, will try again", zap.Stringer("entry", list[i].Entry), zap.Error(err))
				k := memberKey{set, list[i].Entry}
				m.members.SetActual(k, struct{}{})
				m.unwanted(k)
			}
		}
	}
}

// dropHeld has entries deleted that a process left which died while it held
// connections, even where input cannot be read whole: nothing else would let clients in
// again, and without one that is wanted they are refused instead of ignored.
func (m *Mode) dropHeld() {
	for _, k := range slices.Collect(m.members.AllDeletes()) {
		if m.catalogue.known[k.Set].name == setNoLocal {
			m.unwanted(k)
		}
	}
}

// unwanted makes a row that was found one that is to be deleted, not an orphan.
func (m *Mode) unwanted(k memberKey) {
	m.members.SetDesired(k, struct{}{})
	m.members.DeleteDesired(k)
}
