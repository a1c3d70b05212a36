package run

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"time"

	"github.com/kube-ipvs/kube-ipvs/e2e/bench/apiload"
	"github.com/kube-ipvs/kube-ipvs/e2e/bench/measure"
	"github.com/kube-ipvs/kube-ipvs/e2e/bench/report"
)

// The pause between two writes of a rolling update and the pause between two requests meanwhile.
// The last is the number of successive answers of new endpoints that shows that no old one is left.
// The last write replaces 20 of 500: at random, 200 answers miss all 20 once in 3,500.
const (
	rollPause  = 200 * time.Millisecond
	rollAsk    = 10 * time.Millisecond
	rollAnswer = 200
)

// roll replaces all endpoints of one Service while requests go to it.
func (s *session) roll(ctx context.Context) error {
	big, err := s.api.AddBig(ctx, "big")
	if err != nil {
		return err
	}
	if _, err := s.network.Until(ctx, big.VIP, netip.Addr{}, s.Limit); err != nil {
		return err
	}
	if _, _, err := s.process.Rest(ctx, longRest, s.Limit); err != nil {
		return err
	}
	out := &report.Roll{Endpoints: apiload.BigEndpoints, Writes: apiload.BigSteps}
	out.Cost, _, _, err = s.used(ctx, func() error { return s.rollAll(ctx, big, out) })
	if err != nil {
		return err
	}
	s.result.Roll = out
	s.log("%d endpoints rolled: only new ones %s after the last write, %d of %d connections failed, CPU %.2f s", out.Endpoints, text(out.Done), out.Failed, out.Asked, out.Cost.CPU())
	return nil
}

func (s *session) rollAll(ctx context.Context, big *apiload.Big, out *report.Roll) error {
	asking, stop := context.WithCancel(ctx)
	var asker sync.WaitGroup
	var asked error
	asker.Go(func() { asked = s.askAll(asking, big.VIP, out) })
	var err error
	for n := 0; n < apiload.BigSteps && err == nil; n++ {
		err = errors.Join(pause(ctx, rollPause), big.Step(ctx, n))
	}
	start := time.Now()
	stop()
	asker.Wait()
	if err = errors.Join(err, asked); err != nil {
		return err
	}
	out.Done, err = s.untilNew(ctx, big, start)
	return err
}

// askAll asks until ctx ends, and counts.
func (s *session) askAll(ctx context.Context, to netip.AddrPort, out *report.Roll) error {
	return s.network.Inside(func() error {
		for ctx.Err() == nil {
			out.Asked++
			if _, err := s.network.Ask(context.WithoutCancel(ctx), to); err != nil {
				out.Failed++
			}
			time.Sleep(rollAsk)
		}
		return nil
	})
}

// untilNew asks until only new endpoints answer, and returns the time from which they did.
func (s *session) untilNew(ctx context.Context, big *apiload.Big, start time.Time) (done measure.Wait, err error) {
	err = s.network.Inside(func() error {
		from := start
		for row := 0; row < rollAnswer; {
			before := time.Now()
			addr, err := s.network.Ask(ctx, big.VIP)
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
			if time.Since(start) > s.Limit {
				done.Over = true
				break
			}
		}
		done.Seconds = measure.Since(start, from).Seconds
		return nil
	})
	return done, err
}
