package agent

import (
	"context"
	"net/netip"
	"slices"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// ServiceInfo is what the loop knows of one Service. It is never changed, so that a reader may keep it.
type ServiceInfo struct {
	ID model.ServiceID
	// Skipped, Intended, Remarks, Notes, BadAnnotations, Unbound and Refused: see
	// model.ServicePlan.
	Skipped          string
	Intended         bool
	Remarks, Notes   []model.Note
	BadAnnotations   []string
	Unbound, Refused []netip.Addr
	// Holders has the owner of each unbound address.
	Holders map[netip.Addr]string
	// Frontends are those that it wants, sorted by key, and Lost those of them that another Service has.
	Frontends []model.Frontend
	Lost      []dataplane.Conflict
}

// servicesPerRead is how many Services are copied between two passes: copying takes well below a
// millisecond, so that no change waits for a reader.
const servicesPerRead = 256

// Services lists the Services that have frontends, or a reason to have none, sorted.
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

// ServicesInfo calls visit, on the caller's goroutine, with what the loop knows of some Services, in
// their order. It reads a few Services at a time, so two of them may be of different moments; Services
// that are gone by then are left out.
func (a *Agent) ServicesInfo(ctx context.Context, ids []model.ServiceID, visit func(ServiceInfo)) error {
	for some := range slices.Chunk(ids, servicesPerRead) {
		var seen []ServiceInfo
		err := a.Do(ctx, func(context.Context) {
			list := make([]ServiceInfo, 0, len(some))
			for _, id := range some {
				if o := a.services[id]; o != nil {
					list = append(list, a.serviceInfo(id, o))
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

func (a *Agent) serviceInfo(id model.ServiceID, o *outcome) ServiceInfo {
	all := a.mode.Frontends()
	var holders map[netip.Addr]string
	if len(o.unbound) > 0 {
		holders = make(map[netip.Addr]string, len(o.unbound))
		for _, addr := range o.unbound {
			holders[addr] = a.host.Holder(addr)
		}
	}
	return ServiceInfo{
		ID: id, Skipped: o.skipped, Intended: o.intended, Remarks: o.remarks, Notes: o.notes, BadAnnotations: o.bad, Unbound: o.unbound, Refused: o.refused, Holders: holders,
		Frontends: all.Wanted(id), Lost: all.Lost(id),
	}
}

// HostNow returns the host that Services are compiled for: this machine and the Nodes.
func (a *Agent) HostNow(ctx context.Context) (model.Host, error) {
	var h model.Host
	if err := a.Do(ctx, func(context.Context) { h = a.host }); err != nil {
		return model.Host{}, err // the loop may be writing h just now
	}
	return h, nil
}
