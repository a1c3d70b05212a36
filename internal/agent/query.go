package agent

import (
	"context"
	"io"
	"net/netip"
	"slices"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// This file has the questions of other goroutines. The loop answers each between two steps.

// Status returns the state of the loop.
func (a *Agent) Status(ctx context.Context) (Status, error) {
	var s Status
	if err := a.Do(ctx, func(context.Context) { s = a.status() }); err != nil {
		return Status{}, err // the loop may be writing s just now
	}
	return s, nil
}

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
		list := make([]model.ServiceID, 0, len(a.planner.outcomes.byID))
		for id := range a.planner.outcomes.byID {
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
				if o := a.planner.outcomes.byID[id]; o != nil {
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
			holders[addr] = a.planner.host.current.Holder(addr)
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
	if err := a.Do(ctx, func(context.Context) { h = a.planner.host.current }); err != nil {
		return model.Host{}, err // the loop may be writing h just now
	}
	return h, nil
}

// Pending lists the rows that are not in place, at most so many of each table.
func (a *Agent) Pending(ctx context.Context, most int) ([]dataplane.PendingTable, error) {
	var list []dataplane.PendingTable
	if err := a.Do(ctx, func(context.Context) { list = a.mode.Pending(most) }); err != nil {
		return nil, err // the loop may be writing list just now
	}
	return list, nil
}

// Moving fills a list of destinations that drain or start slowly. The loop calls its filters, which have
// to be quick.
func (a *Agent) Moving(ctx context.Context, list dataplane.MovingList) (dataplane.MovingList, error) {
	filled := &list
	if err := a.Do(ctx, func(context.Context) { a.mode.Moving(filled) }); err != nil {
		return dataplane.MovingList{}, err // the loop may be writing list just now
	}
	return *filled, nil
}

// Rows copies the desired rows of one kind, and returns a function that prints the copy.
func (a *Agent) Rows(ctx context.Context, kind string) (func(io.Writer) error, error) {
	var out func(io.Writer) error
	var failed error
	if err := a.Do(ctx, func(context.Context) { out, failed = a.mode.Snapshot(kind) }); err != nil {
		return nil, err // the loop may be writing out just now
	}
	return out, failed
}

// Explain answers a query. The loop looks at one Service, or at the few that have to do with an address.
func (a *Agent) Explain(ctx context.Context, q Query) (Report, error) {
	inputs := a.opts.Catalog.Matching(q.concerns)
	var report Report
	var failed error
	err := a.Do(ctx, func(context.Context) {
		e := explainer{query: q, mode: &a.mode, compiler: a.planner.compiler, host: &a.planner.host.current, localPod: a.opts.LocalPod, relay: a.opts.Relay}
		report, failed = e.report(a.status(), inputs)
	})
	if err != nil {
		return Report{}, err // the loop may be writing report just now
	}
	return report, failed
}
