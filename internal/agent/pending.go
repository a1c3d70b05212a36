package agent

import (
	"context"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
)

// Pending lists what is not in place, no more than most rows of each table.
func (a *Agent) Pending(ctx context.Context, most int) ([]dataplane.PendingTable, error) {
	var list []dataplane.PendingTable
	if err := a.Do(ctx, func(context.Context) { list = a.opts.Mode.Pending(most) }); err != nil {
		return nil, err // the loop may be writing list just now
	}
	return list, nil
}

// Moving lists what drains and what climbs, no more than most of what is wanted, and says how much more there
// is. want is called by the loop and has to be quick; nil wants everything.
func (a *Agent) Moving(ctx context.Context, most int, want func(dataplane.Moving) bool) (rows []dataplane.Moving, more int, err error) {
	list := &dataplane.MovingList{Most: most, Want: want}
	if err := a.Do(ctx, func(context.Context) { a.opts.Mode.Moving(list) }); err != nil {
		return nil, 0, err // the loop may be writing list just now
	}
	return list.Rows, list.More, nil
}
