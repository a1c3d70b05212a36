package drive

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"time"

	"github.com/kube-ipvs/kube-ipvs/e2e/bench/cell"
	"github.com/kube-ipvs/kube-ipvs/e2e/bench/crowd"
	"github.com/kube-ipvs/kube-ipvs/e2e/bench/stats"
)

// change makes one change, and waits until it shows.
type change func(ctx context.Context, n int) (cell.Wait, error)

// changeProbe gives a probe another endpoint. When the first connection has come to that, it is asked whether it answers, too. The time is that from
// the moment when the change is sent to the API server: from the word that it is written on, half of the changes of a fast candidate took no time at
// all, for watches have them before that.
func (r *run) changeProbe(limit time.Duration) change {
	return func(ctx context.Context, n int) (cell.Wait, error) {
		p, start := n%crowd.Probes, time.Now()
		added, err := r.api.ChangeProbe(ctx, p)
		if err != nil {
			return cell.Wait{}, err
		}
		at, err := r.world.Reached(ctx, r.api.Probe(p), added, limit)
		if err == nil {
			_, err = r.world.Until(ctx, r.api.Probe(p), added, limit)
		}
		if err := r.noteTold(ctx, start, added); err != nil {
			return cell.Wait{}, err
		}
		return r.waited(start, at, err)
	}
}

// toldWithin bounds the wait for a watch that nothing but the API server can hold up.
const toldWithin = 30 * time.Second

// noteTold notes when a watch alone had the change.
func (r *run) noteTold(ctx context.Context, start time.Time, added netip.Addr) error {
	ctx, cancel := context.WithTimeout(ctx, toldWithin)
	defer cancel()
	at, err := r.arrivals.At(ctx, added)
	if err != nil {
		return fmt.Errorf("a watch beside the candidate: %w", err)
	}
	r.told = append(r.told, since(start, at))
	return nil
}

// allTold are those since the last call; nil for none.
func (r *run) allTold() *cell.Samples {
	if len(r.told) == 0 {
		return nil
	}
	out := cell.Summarize(r.told)
	r.told = nil
	return &out
}

// addService lets a Service come; parts have names of their own. The time is that from the API server's word about its slice: both writes take it
// the longer the more Services there are, 30 ms with 1,000 and 70 ms with 10,000, which is no candidate's.
func (r *run) addService(part string) change {
	return func(ctx context.Context, n int) (cell.Wait, error) {
		vip, err := r.api.AddService(ctx, fmt.Sprintf("newcomer-%s-%d", part, n))
		if err != nil {
			return cell.Wait{}, err
		}
		start := time.Now()
		at, err := r.world.Until(ctx, vip, netip.Addr{}, r.Limit)
		return r.waited(start, at, err)
	}
}

func (r *run) endpoint(ctx context.Context) (err error) {
	r.cell.Endpoint, err = r.changes(ctx, "endpoint", func(string) change { return r.changeProbe(r.Limit) })
	return err
}

func (r *run) service(ctx context.Context) (err error) {
	r.cell.Service, err = r.changes(ctx, "service", r.addService)
	return err
}

// changes measures a part, and once more where it was noisy.
func (r *run) changes(ctx context.Context, part string, of func(name string) change) (*cell.Changes, error) {
	out, err := r.once(ctx, part, of(part))
	if err != nil || out.Halves <= cell.Noisy || len(out.Times) < r.Samples {
		return out, err
	}
	out.Repeated, err = r.once(ctx, part, of(part+"-again"))
	return out, err
}

// fewest is how many samples are taken even where the limit for the part is over before that.
const fewest = 3

// sayEach is how often a part tells how far it is.
const sayEach = time.Minute

// between is the most that is waited before a change, at random: candidates have clocks, too.
const between = 700 * time.Millisecond

func (r *run) once(ctx context.Context, part string, do change) (*cell.Changes, error) {
	if _, _, err := r.subject.Rest(ctx, shortRest, r.Limit); err != nil {
		return nil, err
	}
	r.told = nil
	var waits []cell.Wait
	var sum cell.Cost
	var length time.Duration
	var cpus, launches []float64
	for began, said := time.Now(), time.Now(); len(waits) < r.Samples; {
		if err := pauseFor(ctx, rand.N(between)); err != nil {
			return nil, err
		}
		start := time.Now()
		cost, _, over, err := r.used(ctx, func() error {
			w, err := do(ctx, len(waits))
			waits = append(waits, w)
			return err
		})
		if err != nil {
			return nil, err
		}
		sum = sum.Add(cost)
		length += time.Since(start)
		cpus, launches = append(cpus, float64(cost.CPU())), append(launches, cost.Launches)
		if over || len(waits) >= fewest && time.Since(began) > r.Limit {
			break
		}
		if time.Since(said) > sayEach {
			said = time.Now()
			r.say("%s, %d Services: %s: %d of %d, the last took %s", r.cell.Candidate, r.n, part, len(waits), r.Samples, text(waits[len(waits)-1]))
		}
	}
	if len(waits) < r.Samples {
		r.cell.Skip(part+", all samples", fmt.Sprintf("%d of %d in %s", len(waits), r.Samples, r.Limit))
	}
	out := &cell.Changes{Samples: cell.Summarize(waits), Each: sum.Per(len(waits)), Length: cell.Took(length / time.Duration(len(waits)))}
	out.CPU, out.Launches = cell.Seconds(stats.Median(cpus)), stats.Median(launches)
	out.Told = r.allTold()
	r.say("%s, %d Services: %s: p50 %s, p90 %s, p99 %s (halves differ by %.0f %%), CPU %.2f ms (mean %.2f), %.0f processes (mean %.2f)", r.cell.Candidate, r.n, part,
		text(out.Percentile(50)), text(out.Percentile(90)), text(out.Percentile(99)), 100*out.Halves, 1e3*float64(out.CPU), 1e3*float64(out.Each.CPU()), out.Launches, out.Each.Launches)
	return out, nil
}

// inChurn is how many times the length of the churn one probe may take; endpoints go on changing that long.
const inChurn = 4

// churn changes endpoints of members all the time, and one of a probe now and then; the probe that is waited for when the time is over is
// waited for still, with all changes going on.
func (r *run) churn(ctx context.Context) error {
	out := &cell.Churn{Wanted: float64(r.Rate)}
	most := int((inChurn+1)*r.Churn.Seconds()) * r.Rate
	r.told = nil
	var waits []cell.Wait
	var ended time.Time
	cost, last, over, err := r.used(ctx, func() error {
		writing, stop := context.WithCancel(ctx)
		defer stop()
		var writer sync.WaitGroup
		var failed error
		start := time.Now()
		writer.Go(func() { out.Changes, failed = r.api.ChangeMembers(writing, r.random, r.Rate, most) })
		var err error
		probe := r.changeProbe(min(r.Limit, inChurn*r.Churn))
		for err == nil && (len(waits) == 0 || time.Since(start) < r.Churn) {
			var w cell.Wait
			if err = pauseFor(ctx, rand.N(between/2)); err == nil {
				w, err = probe(ctx, len(waits))
				waits = append(waits, w)
			}
		}
		stop()
		writer.Wait()
		ended = time.Now()
		out.Length = cell.Took(ended.Sub(start))
		return errors.Join(err, failed)
	})
	if err != nil {
		return err
	}
	out.Probes, out.Each = cell.Summarize(waits), cost.Per(out.Changes+len(waits))
	out.Told = r.allTold()
	out.CatchUp = since(ended, last)
	out.CatchUp.Over = over
	if out.Memory, err = r.subject.Memory(); err != nil {
		return err
	}
	r.cell.Churn = out
	r.say("%s, %d Services: %.0f changes a second: p50 %s, p99 %s of %d, quiet %s after the last, CPU %.2f ms each, RSS %.0f MiB", r.cell.Candidate, r.n, float64(out.Changes)/float64(out.Length),
		text(out.Probes.Percentile(50)), text(out.Probes.Percentile(99)), len(waits), text(out.CatchUp), 1e3*float64(out.Each.CPU()), out.Memory.RSS)
	return nil
}
