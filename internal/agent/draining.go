package agent

import (
	"context"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
)

// drainTeller is a mode that tells of what drains, one by one.
type drainTeller interface {
	EachDraining(visit func(dataplane.Draining))
}

// Draining lists what drains, in no order; a mode that does not tell has nothing.
func (a *Agent) Draining(ctx context.Context) ([]dataplane.Draining, error) {
	var list []dataplane.Draining
	err := a.Do(ctx, func(context.Context) {
		var seen []dataplane.Draining
		if mode, ok := a.opts.Mode.(drainTeller); ok {
			mode.EachDraining(func(d dataplane.Draining) { seen = append(seen, d) })
		}
		list = seen
	})
	if err != nil {
		return nil, err // the loop may be writing list just now
	}
	return list, nil
}
