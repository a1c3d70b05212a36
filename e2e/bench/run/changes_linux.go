package run

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"time"

	"github.com/kube-ipvs/kube-ipvs/e2e/bench/apiload"
	"github.com/kube-ipvs/kube-ipvs/e2e/bench/measure"
	"github.com/kube-ipvs/kube-ipvs/e2e/bench/report"
)

// change makes one change, and waits until it is in place.
type change func(ctx context.Context, n int) (measure.Wait, error)

// changeProbe gives a probe another endpoint. When the first connection has come to that endpoint, a whole request checks that it answers.
// The time begins when the change is sent to the API server: a watch may have the change before the API server has answered the write.
func (s *session) changeProbe(limit time.Duration) change {
	return func(ctx context.Context, n int) (measure.Wait, error) {
		p, start := n%apiload.Probes, time.Now()
		added, err := s.api.ChangeProbe(ctx, p)
		if err != nil {
			return measure.Wait{}, err
		}
		at, err := s.network.Reached(ctx, s.api.Probe(p), added, limit)
		if err == nil {
			_, err = s.network.Until(ctx, s.api.Probe(p), added, limit)
		}
		if err := s.noteFloor(ctx, start, added); err != nil {
			return measure.Wait{}, err
		}
		return s.waited(start, at, err)
	}
}

// floorWithin bounds the wait for a watch that only the API server can delay.
const floorWithin = 30 * time.Second

// noteFloor notes when a watch that does nothing else had the change: no candidate can be faster.
func (s *session) noteFloor(ctx context.Context, start time.Time, added netip.Addr) error {
	ctx, cancel := context.WithTimeout(ctx, floorWithin)
	defer cancel()
	at, err := s.arrivals.At(ctx, added)
	if err != nil {
		return fmt.Errorf("a watch beside the candidate: %w", err)
	}
	s.told = append(s.told, measure.Since(start, at))
	return nil
}

// floor sums up what noteFloor noted since the last call; nil for nothing.
func (s *session) floor() *measure.Samples {
	if len(s.told) == 0 {
		return nil
	}
	out := measure.Summarize(s.told)
	s.told = nil
	return &out
}

// addService adds a Service. The time begins when the API server has answered the write of its
// slice. The writes themselves take 30 ms with 1,000 Services and 70 ms with 10,000 for every
// candidate.
func (s *session) addService(ctx context.Context, n int) (measure.Wait, error) {
	vip, err := s.api.AddService(ctx, fmt.Sprintf("added-%d", n))
	if err != nil {
		return measure.Wait{}, err
	}
	start := time.Now()
	at, err := s.network.Until(ctx, vip, netip.Addr{}, s.Limit)
	return s.waited(start, at, err)
}

func (s *session) endpoint(ctx context.Context) (err error) {
	s.result.Endpoint, err = s.changes(ctx, "endpoint", s.changeProbe(s.Limit))
	return err
}

func (s *session) service(ctx context.Context) (err error) {
	s.result.Service, err = s.changes(ctx, "service", s.addService)
	return err
}

// fewest is how many samples are taken even where the limit of the part ends before.
const fewest = 3

// logInterval is how often a part reports its progress.
const logInterval = time.Minute

// between bounds the random pause before a change: candidates have timers, too.
const between = 700 * time.Millisecond

// changes makes one change after the other, each when the candidate rests.
func (s *session) changes(ctx context.Context, part string, do change) (*report.Changes, error) {
	if _, _, err := s.process.Rest(ctx, shortRest, s.Limit); err != nil {
		return nil, err
	}
	s.told = nil
	var waits []measure.Wait
	var cpus []measure.Seconds
	for began, logged := time.Now(), time.Now(); len(waits) < s.Samples; {
		if err := pause(ctx, rand.N(between)); err != nil {
			return nil, err
		}
		cost, _, over, err := s.used(ctx, func() error {
			w, err := do(ctx, len(waits))
			waits = append(waits, w)
			return err
		})
		if err != nil {
			return nil, err
		}
		cpus = append(cpus, cost.CPU())
		if over || len(waits) >= fewest && time.Since(began) > s.Limit {
			break
		}
		if time.Since(logged) > logInterval {
			logged = time.Now()
			s.log("%s: %d of %d, the last took %s", part, len(waits), s.Samples, text(waits[len(waits)-1]))
		}
	}
	if len(waits) < s.Samples {
		s.result.Skip(part+", all samples", fmt.Sprintf("%d of %d in %s", len(waits), s.Samples, s.Limit))
	}
	out := &report.Changes{Samples: measure.Summarize(waits), CPU: measure.Median(cpus), Floor: s.floor()}
	s.log("%s: p50 %s, p99 %s (halves differ by %.0f %%), CPU %.2f ms", part, text(out.Percentile(50)), text(out.Percentile(99)), 100*out.Halves, 1e3*float64(out.CPU))
	return out, nil
}

// inChurn is how many times the length of the churn one probe may take; endpoints go on changing that long.
const inChurn = 4

// churn changes endpoints of members all the time, and one of a probe now and then. The last probe is awaited while the changes go on.
func (s *session) churn(ctx context.Context) error {
	out := &report.Churn{}
	most := int((inChurn+1)*s.Churn.Seconds()) * s.Rate
	s.told = nil
	var waits []measure.Wait
	var ended time.Time
	cost, last, over, err := s.used(ctx, func() error {
		writing, stop := context.WithCancel(ctx)
		defer stop()
		var writer sync.WaitGroup
		var failed error
		start := time.Now()
		writer.Go(func() { out.Changes, failed = s.api.ChangeMembers(writing, s.random, s.Rate, most) })
		var err error
		probe := s.changeProbe(min(s.Limit, inChurn*s.Churn))
		for err == nil && (len(waits) == 0 || time.Since(start) < s.Churn) {
			var w measure.Wait
			if err = pause(ctx, rand.N(between/2)); err == nil {
				w, err = probe(ctx, len(waits))
				waits = append(waits, w)
			}
		}
		stop()
		writer.Wait()
		ended = time.Now()
		out.Length = measure.Took(ended.Sub(start))
		return errors.Join(err, failed)
	})
	if err != nil {
		return err
	}
	out.Probes, out.Floor, out.Cost = measure.Summarize(waits), s.floor(), cost
	out.CatchUp = measure.Since(ended, last)
	out.CatchUp.Over = over
	if out.RSS, err = s.process.RSS(); err != nil {
		return err
	}
	s.result.Churn = out
	s.log("%.0f changes a second: p50 %s, p99 %s of %d, quiet %s after the last, CPU %.2f s, RSS %.0f MiB", float64(out.Changes)/float64(out.Length),
		text(out.Probes.Percentile(50)), text(out.Probes.Percentile(99)), len(waits), text(out.CatchUp), out.Cost.CPU(), out.RSS)
	return nil
}
