package drive

import (
	"context"
	"errors"
	"fmt"

	"github.com/kube-ipvs/kube-ipvs/e2e/bench/cell"
	"github.com/kube-ipvs/kube-ipvs/e2e/bench/meter"
	"github.com/kube-ipvs/kube-ipvs/e2e/bench/world"
)

// countStart launches the candidate once more, on a node of its own, and counts netlink. A copy of all messages costs, so the start that is
// measured goes without.
func (r *run) countStart(ctx context.Context, m *meter.Meter, c Candidate) error {
	if s := r.cell.Start; s == nil || s.Quiet.Over {
		return errors.New("the start was not over")
	}
	return onNode(ctx, r.api, func(w *world.World, dir string) error { return r.countStartOn(ctx, m, c, w, dir) })
}

func (r *run) countStartOn(ctx context.Context, m *meter.Meter, c Candidate, w *world.World, dir string) error {
	again := &run{Options: r.Options, api: r.api, world: w, n: r.n, cell: &cell.Cell{Candidate: c.Name + "-counted"}}
	var start cell.Start
	tap, err := again.tap()
	if err != nil {
		return err
	}
	failed := again.withCandidate(ctx, m, c, dir, func() error { return again.launched(ctx, &start) })
	traffic, dropped, err := tap.Close()
	if err = errors.Join(failed, err); err != nil {
		return err
	}
	out := &cell.Counted{Last: start.Last, Quiet: start.Quiet, Cost: start.Cost, Traffic: traffic, Writing: tap.Writing(), Dropped: dropped}
	if at := tap.Changed(); !at.IsZero() && !at.Before(again.subject.Began()) {
		programmed := since(again.subject.Began(), at)
		out.Programmed = &programmed
	}
	r.cell.Counted = out
	messages, bytes := traffic.Sum()
	r.say("%s, %d Services: start: %.0f messages of %.0f bytes over netlink, %d lost, the last change %s", c.Name, r.n, messages, bytes, dropped, programmedText(out))
	return nil
}

func programmedText(c *cell.Counted) string {
	if c.Programmed == nil {
		return "unknown"
	}
	return "after " + text(*c.Programmed)
}

// tap counts what goes over netlink on the node.
func (r *run) tap() (tap *meter.Tap, err error) {
	err = r.world.Node.Do(func() (err error) {
		tap, err = meter.NewTap()
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("count netlink: %w", err)
	}
	return tap, nil
}
