package drive

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/kube-ipvs/kube-ipvs/e2e/bench/cell"
)

// How a soak goes: after so many changes one of a probe is waited for, so that no candidate is left behind; and how often memory is looked at.
const (
	soakRound  = 500
	soakGlance = 10 * time.Second
)

// soak makes as many changes as a long time has, in a shorter one, and follows the memory.
func (r *run) soak(ctx context.Context) error {
	out := &cell.Soak{Wanted: r.SoakChanges}
	start := time.Now()
	watching, stop := context.WithCancel(ctx)
	var watcher sync.WaitGroup
	var unseen error
	watcher.Go(func() { out.Memory, unseen = r.follow(watching, start) })
	err := r.soakAll(ctx, out, start)
	out.Length = cell.Took(time.Since(start))
	stop()
	watcher.Wait()
	if err != nil {
		return err
	}
	if unseen != nil {
		return fmt.Errorf("follow the memory: %w", unseen)
	}
	r.cell.Soak = out
	r.say("%s, %d Services: %d changes in %s, RSS %.1f MiB at first and %.1f MiB in the end", r.cell.Candidate, r.n, out.Changes, time.Since(start).Round(time.Second),
		out.Memory[0].RSS, out.Memory[len(out.Memory)-1].RSS)
	return nil
}

// soakAll changes endpoints until there were enough changes, or the time for them is over.
func (r *run) soakAll(ctx context.Context, out *cell.Soak, start time.Time) error {
	probe := r.changeProbe(r.Limit)
	for n := 0; out.Changes < out.Wanted && time.Since(start) < r.Soak; n++ {
		changes, err := r.api.ChangeMembers(ctx, r.random, r.SoakRate, min(soakRound, out.Wanted-out.Changes))
		out.Changes += changes
		if err != nil {
			return err
		}
		w, err := probe(ctx, n)
		if err != nil {
			return err
		}
		out.Slowest = max(out.Slowest, w.Seconds)
		if w.Over {
			return fmt.Errorf("after %d changes a probe does not answer", out.Changes)
		}
		if tenth := max(out.Wanted/10, 1); out.Changes/tenth > (out.Changes-changes)/tenth {
			r.say("%s, %d Services: %d of %d changes after %s", r.cell.Candidate, r.n, out.Changes, out.Wanted, time.Since(start).Round(time.Second))
		}
	}
	return ctx.Err()
}

// follow looks at the memory until ctx ends, and once more then.
func (r *run) follow(ctx context.Context, start time.Time) (seen []cell.Held, err error) {
	for ended := false; ; {
		m, err := r.subject.Memory()
		if err != nil {
			return nil, err
		}
		seen = append(seen, cell.Held{At: cell.Took(time.Since(start)), RSS: m.RSS})
		if ended {
			return seen, nil
		}
		ended = pauseFor(ctx, soakGlance) != nil
	}
}
