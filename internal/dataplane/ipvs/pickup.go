package ipvs

import (
	"context"
	"slices"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// When a router moves a connection to this node, the kernel meets it in the middle. It can continue
// if this node picks the backend that the other node picked, and if the backend answers the client
// directly: with scheduler mh, and forward dr or tunnel. Then IPVS has to schedule packets of a
// connection that it does not know, which it does by sysctls that apply to all virtual servers. So
// they are on only while such a frontend is in force. For other Services they change one thing: the
// backend and not this node resets a connection that neither of them knows.

// Pickup sets the sysctls. It belongs to the goroutine of the loop.
type Pickup interface {
	// Want sets the sysctls of some protocols, and restores those of the others. A refusal is
	// logged, and tried again by Deps.KeepTuned.
	Want(ctx context.Context, protocols []model.Protocol)
	// InForce reports whether the kernel picks up connections of a protocol.
	InForce(p model.Protocol) bool
}

// pickup decides which protocols have connections that may be picked up.
type pickup struct {
	kernel Pickup // nil sets nothing
	// counts has the frontends in force of which connections may be picked up.
	counts map[model.Protocol]int
	// wanted was handed to the kernel last; settled means that it was complete.
	wanted           []model.Protocol
	settled, cleared bool
}

// picksUp reports whether connections to a frontend continue here that another node began.
func picksUp(f *model.Frontend) bool {
	return f != nil && f.Forward != model.ForwardNAT && f.Scheduler.Name() == "mh"
}

// onChange follows one frontend.
func (p *pickup) onChange(c dataplane.Change) {
	if picksUp(c.Old) {
		p.counts[c.Key.Protocol]--
	}
	if picksUp(c.New) {
		p.counts[c.Key.Protocol]++
	}
}

// onPass has the kernel pick up what the frontends need. Until all Services are known, it takes
// nothing back.
func (p *pickup) onPass(ctx context.Context, known bool) {
	if p.kernel == nil || p.cleared {
		return
	}
	var wanted []model.Protocol
	for _, one := range []model.Protocol{model.TCP, model.SCTP} { // UDP has no beginning
		if p.counts[one] > 0 || !known && slices.Contains(p.wanted, one) {
			wanted = append(wanted, one)
		}
	}
	if slices.Equal(wanted, p.wanted) && (p.settled || !known) {
		return
	}
	p.kernel.Want(ctx, wanted)
	p.wanted, p.settled = wanted, p.settled || known
}

// inForce reports whether connections to a frontend are picked up, and whether they are to be.
func (p *pickup) inForce(f *model.Frontend) (wanted, on bool) {
	if !picksUp(f) || p.kernel == nil {
		return false, false
	}
	return true, f.Key.Protocol == model.UDP || p.kernel.InForce(f.Key.Protocol)
}

// clear leaves the sysctls as they are: cleanup restores them from the journal.
func (p *pickup) clear() { p.cleared = true }
