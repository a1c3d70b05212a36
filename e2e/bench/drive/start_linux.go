package drive

import (
	"context"
	"net/netip"
	"time"

	"github.com/kube-ipvs/kube-ipvs/e2e/bench/cell"
	"github.com/kube-ipvs/kube-ipvs/e2e/bench/crowd"
)

// probes is how many members show that all are carried.
const probes = 100

// launched waits until the probes answer, then until the candidate rests.
func (r *run) launched(ctx context.Context, out *cell.Start) error {
	kubernetes, err := r.api.KubernetesVIP(ctx)
	if err != nil {
		return err
	}
	asked := []netip.AddrPort{kubernetes}
	for _, i := range crowd.Spread(r.n, probes) {
		asked = append(asked, r.api.VIP(i))
	}
	at, err := r.world.All(ctx, asked, r.Limit, r.subject.Alive)
	if err != nil {
		return err
	}
	out.Probes = len(asked) - 1
	server := r.answered(at[0])
	out.Server = &server
	out.First, _ = r.firstAndLast(at)
	_, out.Last = r.firstAndLast(at[1:])
	r.say("%s, %d Services: the first answers after %s, the last of %d after %s", r.cell.Candidate, r.n, text(out.First), out.Probes, text(out.Last))
	if out.Quiet, err = r.quiet(ctx, out.Last); err != nil {
		return err
	}
	out.Cost, err = r.subject.Cost()
	return err
}

// start waits until all is done, and asks all Services once.
func (r *run) start(ctx context.Context) (err error) {
	out := &cell.Start{}
	if err := r.launched(ctx, out); err != nil {
		return err
	}
	r.cell.Start = out
	out.Writing = r.writing(ctx)
	if out.Memory, err = r.subject.Memory(); err != nil {
		return err
	}
	if !out.Last.Over {
		if out.Unanswered, err = r.unanswered(ctx); err != nil {
			return err
		}
	}
	r.say("%s, %d Services: quiet since %s, CPU %.2f s, %.0f processes, RSS %.0f MiB, %d do not answer", r.cell.Candidate, r.n, text(out.Quiet), out.Cost.CPU(), out.Cost.Launches, out.Memory.RSS, out.Unanswered)
	if err := r.kernel(ctx); err != nil {
		r.cell.Skip("kernel", err.Error())
	}
	return r.cell.Save(r.Out)
}

// quiet waits until the candidate has done its work. One that missed the limit is not waited for.
func (r *run) quiet(ctx context.Context, last cell.Wait) (cell.Wait, error) {
	if last.Over {
		return last, nil
	}
	at, over, err := r.subject.Rest(ctx, longRest, r.Limit)
	w := since(r.subject.Began(), at)
	w.Over = over
	return w, err
}

// answered is the time from the launch to an answer, or the limit.
func (r *run) answered(at time.Time) cell.Wait {
	if at.IsZero() {
		return cell.Wait{Seconds: cell.Took(r.Limit), Over: true}
	}
	return since(r.subject.Began(), at)
}

func (r *run) firstAndLast(at []time.Time) (first, last cell.Wait) {
	first = r.answered(time.Time{})
	for _, one := range at {
		w := r.answered(one)
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
func (r *run) unanswered(ctx context.Context) (n int, err error) {
	err = r.world.Inside(func() error {
		for i := range r.n {
			_, err := r.world.Ask(ctx, r.api.VIP(i))
			if err != nil {
				_, err = r.world.Ask(ctx, r.api.VIP(i))
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

// text prints a time that was waited for.
func text(w cell.Wait) string {
	d := time.Duration(float64(w.Seconds) * float64(time.Second))
	if w.Over {
		return "more than " + d.Round(time.Second).String()
	}
	return d.Round(10 * time.Microsecond).String()
}

// idleTime is how long nothing changes.
const idleTime = 30 * time.Second

// idle measures what is done although nothing changes.
func (r *run) idle(ctx context.Context) error {
	before, err := r.subject.Cost()
	if err != nil {
		return err
	}
	start := time.Now()
	if err := pauseFor(ctx, idleTime); err != nil {
		return err
	}
	after, err := r.subject.Cost()
	if err != nil {
		return err
	}
	r.cell.Idle = &cell.Idle{Length: cell.Took(time.Since(start)), Cost: after.Sub(before)}
	r.say("%s, %d Services: idle: CPU %.3f s, %.0f processes in %s", r.cell.Candidate, r.n, r.cell.Idle.Cost.CPU(), r.cell.Idle.Cost.Launches, idleTime)
	if err := r.drift(ctx); err != nil {
		r.cell.Skip("drift", err.Error())
	}
	return nil
}
