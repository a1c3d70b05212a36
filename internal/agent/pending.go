package agent

import (
	"context"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
)

// Pending lists what is not in place, no more than most rows of each table.
func (a *Agent) Pending(ctx context.Context, most int) ([]dataplane.PendingTable, error) {
	var list []dataplane.PendingTable
	if err := a.Do(ctx, func(context.Context) { list = a.mode.Pending(most) }); err != nil {
		return nil, err // the loop may be writing list just now
	}
	return list, nil
}

// Moving lists what drains and what climbs, as much as the list asks for. What chooses is called by the loop and has
// to be quick.
func (a *Agent) Moving(ctx context.Context, list dataplane.MovingList) (dataplane.MovingList, error) {
	filled := &list
	if err := a.Do(ctx, func(context.Context) { a.mode.Moving(filled) }); err != nil {
		return dataplane.MovingList{}, err // the loop may be writing list just now
	}
	return *filled, nil
}
