package run

import (
	"context"
	"net/netip"
	"time"

	"github.com/kube-ipvs/kube-ipvs/e2e/bench/apiload"
	"github.com/kube-ipvs/kube-ipvs/e2e/bench/measure"
	"github.com/kube-ipvs/kube-ipvs/e2e/bench/report"
)

// probes is the number of members that show that all are carried.
const probes = 100

// start waits until the probes answer and the candidate rests, and then asks every Service once.
func (s *session) start(ctx context.Context) error {
	kubernetes, err := s.api.KubernetesVIP(ctx)
	if err != nil {
		return err
	}
	asked := []netip.AddrPort{kubernetes}
	for _, i := range apiload.Spread(s.n, probes) {
		asked = append(asked, s.api.VIP(i))
	}
	at, err := s.network.All(ctx, asked, s.Limit, s.process.Alive)
	if err != nil {
		return err
	}
	out := &report.Start{Probes: len(asked) - 1}
	out.First, _ = s.firstAndLast(at)
	_, out.Last = s.firstAndLast(at[1:])
	s.log("the first answers after %s, the last of %d after %s", text(out.First), out.Probes, text(out.Last))
	if out.Quiet, err = s.quiet(ctx, out.Last); err != nil {
		return err
	}
	if out.Cost, err = s.process.Cost(); err != nil {
		return err
	}
	if out.RSS, err = s.process.RSS(); err != nil {
		return err
	}
	if !out.Last.Over {
		if out.Unanswered, err = s.unanswered(ctx); err != nil {
			return err
		}
	}
	s.result.Start = out
	s.log("quiet since %s, CPU %.2f s, RSS %.0f MiB, %d do not answer", text(out.Quiet), out.Cost.CPU(), out.RSS, out.Unanswered)
	return s.result.Save(s.Out)
}

// quiet waits until the candidate rests, unless it missed the limit.
func (s *session) quiet(ctx context.Context, last measure.Wait) (measure.Wait, error) {
	if last.Over {
		return last, nil
	}
	at, over, err := s.process.Rest(ctx, longRest, s.Limit)
	w := measure.Since(s.process.Began(), at)
	w.Over = over
	return w, err
}

// answered is the time from the launch to an answer, or the limit.
func (s *session) answered(at time.Time) measure.Wait {
	if at.IsZero() {
		return measure.Wait{Seconds: measure.Took(s.Limit), Over: true}
	}
	return measure.Since(s.process.Began(), at)
}

func (s *session) firstAndLast(at []time.Time) (first, last measure.Wait) {
	first = s.answered(time.Time{})
	for _, one := range at {
		w := s.answered(one)
		if !w.Over && (first.Over || w.Seconds < first.Seconds) {
			first = w
		}
		if w.Over && !last.Over || w.Over == last.Over && w.Seconds > last.Seconds {
			last = w
		}
	}
	return first, last
}

// unanswered counts the Services that do not answer twice in a row.
func (s *session) unanswered(ctx context.Context) (n int, err error) {
	err = s.network.Inside(func() error {
		for i := range s.n {
			_, err := s.network.Ask(ctx, s.api.VIP(i))
			if err != nil {
				_, err = s.network.Ask(ctx, s.api.VIP(i))
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err != nil {
				n++
			}
		}
		return nil
	})
	return n, err
}

// text prints a Wait.
func text(w measure.Wait) string {
	d := time.Duration(float64(w.Seconds) * float64(time.Second))
	if w.Over {
		return "more than " + d.Round(time.Second).String()
	}
	return d.Round(10 * time.Microsecond).String()
}

// idleTime is how long nothing changes.
const idleTime = 30 * time.Second

// idle measures what the candidate does although nothing changes.
func (s *session) idle(ctx context.Context) error {
	before, err := s.process.Cost()
	if err != nil {
		return err
	}
	start := time.Now()
	if err := pause(ctx, idleTime); err != nil {
		return err
	}
	after, err := s.process.Cost()
	if err != nil {
		return err
	}
	s.result.Idle = &report.Idle{Length: measure.Took(time.Since(start)), Cost: after.Sub(before)}
	s.log("idle: CPU %.3f s in %s", s.result.Idle.Cost.CPU(), idleTime)
	return nil
}
