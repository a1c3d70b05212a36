package agent

import (
	"context"
	"maps"
	"net/netip"
	"slices"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// A Prober probes the endpoints of the API servers; *apiprobe.Prober is one.
type Prober interface {
	// Want replaces the endpoints to probe. The loop calls it, and it must not block.
	Want(endpoints []netip.AddrPort)
}

// apiEndpoints owns which endpoints of API servers are probed: the backends of the Service on this node.
// It belongs to the loop goroutine.
type apiEndpoints struct {
	prober Prober // nil probes none
	// byID has those of each source: a file may have the Service, too.
	byID map[model.ServiceID][]netip.AddrPort
}

func newAPIEndpoints(p Prober) apiEndpoints {
	return apiEndpoints{prober: p, byID: map[model.ServiceID][]netip.AddrPort{}}
}

// set takes over the plan of a Service. An endpoint at which a frontend answers is not probed: the
// probe would reach a backend of that frontend.
func (a *apiEndpoints) set(plan *model.ServicePlan, answers func(model.FrontendKey) bool) {
	if a.prober == nil || !plan.ID.APIServer() {
		return
	}
	var list []netip.AddrPort
	for i := range plan.Frontends {
		f := &plan.Frontends[i]
		if f.Key.Protocol != model.TCP {
			continue
		}
		for _, b := range f.Backends {
			if !answers(model.FrontendKey{Addr: b.Addr.Addr(), Port: b.Addr.Port(), Protocol: model.TCP}) {
				list = append(list, b.Addr)
			}
		}
	}
	if a.byID[plan.ID] = list; len(list) == 0 {
		delete(a.byID, plan.ID)
	}
	a.prober.Want(slices.Concat(slices.Collect(maps.Values(a.byID))...))
}

// SetFailing replaces the endpoints of API servers that fail their probes, with the reason of each, and
// applies what follows. The map is not changed after the call. It blocks until the loop has it.
func (a *Agent) SetFailing(ctx context.Context, failing map[netip.AddrPort]string) error {
	return a.Do(ctx, func(ctx context.Context) {
		a.planner.host.setFailing(failing)
		if affected, changed := a.planner.applyHost(); changed {
			a.planner.compile(ctx, affected)
			a.writer.apply(ctx, false)
		}
	})
}
