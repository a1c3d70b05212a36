package agent

import (
	"context"
	"net/netip"
	"slices"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// Known is what the loop knows of one Service. Nothing in it is ever changed, so it may be kept.
type Known struct {
	ID model.ServiceID
	// Skipped, Intended, Remarks, Notes, BadAnnotations, Unbound and Refused: see
	// model.ServicePlan.
	Skipped          string
	Intended         bool
	Remarks, Notes   []model.Note
	BadAnnotations   []string
	Unbound, Refused []netip.Addr
	// Holders say whose the unbound addresses are.
	Holders map[netip.Addr]string
	// Frontends are what it wants, sorted by key, and Lost those of them that another Service has.
	Frontends []model.Frontend
	Lost      []dataplane.Conflict
}

// lookAtOnce is how many Services are looked at between two cycles: well below a millisecond, so that no change waits for a reader.
const lookAtOnce = 256

// Services lists all that have frontends or a reason to have none, sorted.
func (a *Agent) Services(ctx context.Context) ([]model.ServiceID, error) {
	var ids []model.ServiceID
	err := a.Do(ctx, func(context.Context) {
		list := make([]model.ServiceID, 0, len(a.services))
		for id := range a.services {
			list = append(list, id)
		}
		ids = list
	})
	if err != nil {
		return nil, err // the loop may be writing ids just now
	}
	slices.SortFunc(ids, model.ServiceID.Compare)
	return ids, nil
}

// Look tells of some Services what is known, in their order, a few at a time: what it tells of two may be of different moments. Those
// that are gone by then are left out. visit is called by the caller's goroutine.
func (a *Agent) Look(ctx context.Context, ids []model.ServiceID, visit func(Known)) error {
	for some := range slices.Chunk(ids, lookAtOnce) {
		var seen []Known
		err := a.Do(ctx, func(context.Context) {
			list := make([]Known, 0, len(some))
			for _, id := range some {
				if o := a.services[id]; o != nil {
					list = append(list, a.lookAt(id, o))
				}
			}
			seen = list
		})
		if err != nil {
			return err
		}
		for _, k := range seen {
			visit(k)
		}
	}
	return nil
}

func (a *Agent) lookAt(id model.ServiceID, o *outcome) Known {
	all := a.mode.Frontends()
	var holders map[netip.Addr]string
	if len(o.unbound) > 0 {
		holders = make(map[netip.Addr]string, len(o.unbound))
		for _, addr := range o.unbound {
			holders[addr] = a.host.Holder(addr)
		}
	}
	return Known{
		ID: id, Skipped: o.skipped, Intended: o.intended, Remarks: o.remarks, Notes: o.notes, BadAnnotations: o.bad, Unbound: o.unbound, Refused: o.refused, Holders: holders,
		Frontends: all.Wanted(id), Lost: all.Lost(id),
	}
}

// HostNow is what is known of this machine and of the Nodes, as Services were compiled for it.
func (a *Agent) HostNow(ctx context.Context) (model.Host, error) {
	var h model.Host
	if err := a.Do(ctx, func(context.Context) { h = a.host }); err != nil {
		return model.Host{}, err // the loop may be writing h just now
	}
	return h, nil
}
