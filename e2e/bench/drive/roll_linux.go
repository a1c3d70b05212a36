package drive

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"time"

	"github.com/kube-ipvs/kube-ipvs/e2e/bench/cell"
	"github.com/kube-ipvs/kube-ipvs/e2e/bench/crowd"
)

// How a Service is rolled: the pause between two writes, and between two questions meanwhile; and how many answers of new endpoints in a row
// say that no old one is left. Of 500, the last write replaces 20: where backends are chosen at random, 200 answers miss all of them once in 3,500.
const (
	rollPause  = 200 * time.Millisecond
	rollAsk    = 10 * time.Millisecond
	rollAnswer = 200
)

// roll replaces all endpoints of one Service while it is asked.
func (r *run) roll(ctx context.Context) error {
	big, err := r.api.AddBig(ctx, "big")
	if err != nil {
		return err
	}
	if _, err := r.world.Until(ctx, big.VIP, netip.Addr{}, r.Limit); err != nil {
		return err
	}
	if _, _, err := r.subject.Rest(ctx, longRest, r.Limit); err != nil {
		return err
	}
	out := &cell.Roll{Endpoints: crowd.BigEndpoints, Writes: crowd.BigSteps}
	out.Cost, _, _, err = r.used(ctx, func() error { return r.rollAll(ctx, big, out) })
	if err != nil {
		return err
	}
	r.cell.Roll = out
	r.say("%s, %d Services: %d endpoints rolled: only new ones %s after the last write, %d of %d connections failed, CPU %.2f s, %.0f processes", r.cell.Candidate, r.n, out.Endpoints,
		text(out.Done), out.Failed, out.Asked, out.Cost.CPU(), out.Cost.Launches)
	return nil
}

func (r *run) rollAll(ctx context.Context, big *crowd.Big, out *cell.Roll) error {
	asking, stop := context.WithCancel(ctx)
	var asker sync.WaitGroup
	var asked error
	asker.Go(func() { asked = r.askAll(asking, big.VIP, out) })
	var err error
	for n := 0; n < crowd.BigSteps && err == nil; n++ {
		err = errors.Join(pauseFor(ctx, rollPause), big.Step(ctx, n))
	}
	start := time.Now()
	stop()
	asker.Wait()
	if err = errors.Join(err, asked); err != nil {
		return err
	}
	out.Done, err = r.untilNew(ctx, big, start)
	return err
}

// askAll asks until ctx ends, and counts.
func (r *run) askAll(ctx context.Context, to netip.AddrPort, out *cell.Roll) error {
	return r.world.Inside(func() error {
		for ctx.Err() == nil {
			out.Asked++
			if _, err := r.world.Ask(context.WithoutCancel(ctx), to); err != nil {
				out.Failed++
			}
			time.Sleep(rollAsk)
		}
		return nil
	})
}

// untilNew asks until only new endpoints answer, and returns since when.
func (r *run) untilNew(ctx context.Context, big *crowd.Big, start time.Time) (done cell.Wait, err error) {
	err = r.world.Inside(func() error {
		from := start
		for row := 0; row < rollAnswer; {
			before := time.Now()
			addr, err := r.world.Ask(ctx, big.VIP)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			switch {
			case err != nil || big.Old(addr):
				row, from = 0, time.Now()
			case row == 0:
				from = before
				row++
			default:
				row++
			}
			if time.Since(start) > r.Limit {
				done.Over = true
				break
			}
		}
		done.Seconds = since(start, from).Seconds
		return nil
	})
	return done, err
}
