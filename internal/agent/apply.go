package agent

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/catalog"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
)

// A writer owns the passes that write rows: when one may run, what is retried, and what they wrote. Its
// fields belong to the loop goroutine, but for lag.
type writer struct {
	*shared
	planner *planner
	backoff backoff
	stats   stats
	taken   taken
	lag     syncLag
}

// apply writes the pending rows, if that is allowed yet, and schedules the next try of those that failed.
// Rows that failed before are written only in a retry.
func (w *writer) apply(ctx context.Context, retry bool) {
	if !w.progress.synced || ctx.Err() != nil || !w.progress.loaded && w.schedule.isSet(retryFailed) {
		return
	}
	start := w.taken.start(time.Now())
	if err := w.load(ctx); err != nil {
		w.lag.begin(time.Now())
		w.failed(ctx, err, 0, true)
		w.reportPass(start, time.Now(), false, false)
		return
	}
	w.logAdopted()
	result := w.mode.Apply(ctx, dataplane.ApplyOptions{KeepOrphans: !w.progress.complete, Retry: retry})
	ended := time.Now()
	w.record(start, ended, result)
	w.schedule.startAudits(w.opts.AuditPeriod, ended)
	w.updateLag(ended)
	w.reportPass(start, ended, result.Pending == 0, result.Total().Failed == 0 || result.Total().Written() > 0)
	w.planner.health.flush()
	w.planner.relayed.flush()
	if result.Paced > 0 {
		w.schedule.setIfUnset(takeChanges, ended.Add(w.opts.Coalesce)) // the rest is written with the changes until then
	}
	switch {
	case result.Pending > result.Paced:
		w.failed(ctx, result.Total().Err(), result.Pending, retry)
	case result.Pending == 0:
		w.succeeded(ended)
	}
	w.opts.Observer.Drains(w.mode.Drains())
	w.schedule.setDue(w.mode.Due(), time.Now().Add(w.opts.Coalesce))
}

// serve writes some Services, and deletes nothing. Rows that fail stay pending.
func (w *writer) serve(ctx context.Context, inputs []catalog.Input) {
	start := time.Now()
	w.planner.compile(ctx, inputs)
	result := w.mode.Apply(ctx, dataplane.ApplyOptions{KeepOrphans: true})
	w.record(start, time.Now(), result)
}

// load reads the host, starts the mode and reads the kernel, once. Nothing is written before the owners
// of addresses are known.
func (w *writer) load(ctx context.Context) error {
	if w.progress.loaded {
		return nil
	}
	if err := w.planner.needHost(ctx); err != nil {
		return err
	}
	if err := w.mode.Start(ctx); err != nil {
		return err
	}
	if err := w.mode.Load(ctx); err != nil {
		return err
	}
	w.progress.loaded = true
	return nil
}

// logAdopted logs once which rows were found in place.
func (w *writer) logAdopted() {
	if !w.progress.adopted {
		w.progress.adopted = true
		w.reporter.logAdopted(w.mode.Name(), w.mode.Tables())
	}
}

// record counts one pass and reports it as a cycle if it did anything.
func (w *writer) record(start, ended time.Time, r dataplane.Result) {
	w.opts.Observer.Tables(w.mode.Tables())
	w.opts.Observer.Counts(w.planner.outcomes.counts)
	c, written := w.stats.record(start, ended, w.planner.takeCompiled(), r)
	if written > 0 {
		w.reporter.logUpdate(*c)
	}
	if c != nil {
		w.opts.Observer.Cycle(*c)
	}
}

// updateLag judges the pass that ended: whether most of the desired rows are in place.
func (w *writer) updateLag(now time.Time) {
	desired, missing := 0, 0
	for _, t := range w.mode.Tables() {
		desired += t.Desired
		missing += t.Updates
	}
	w.lag.update(desired, missing, now)
}

// reportPass reports one pass to the observer. A pass that wrote rows ends the measured latency of
// the endpoint changes that it was for. A row that the kernel always refuses must not delay the
// measurement of all others.
func (w *writer) reportPass(start, ended time.Time, ok, written bool) {
	p := Pass{At: start, Took: ended.Sub(start), OK: ok}
	if written {
		p.Triggers = w.taken.written()
	}
	w.opts.Observer.Pass(p)
}

// failed schedules the next try of the pending rows. A retry that is scheduled is kept, whatever changes
// meanwhile. A nil error is that no other row has failed.
func (w *writer) failed(ctx context.Context, err error, pending int, retry bool) {
	if ctx.Err() != nil {
		return // a pass that is interrupted by the agent's end has not failed
	}
	now := time.Now()
	if retry || !w.schedule.isSet(retryFailed) {
		w.schedule.set(retryFailed, now.Add(w.backoff.backOff(err)))
	}
	if err == nil {
		return
	}
	warn := w.backoff.fail(err, retry, now)
	w.lag.fail(w.backoff.failures, err)
	if warn {
		w.log.Warn("apply failed, will retry",
			zap.Int("pending", pending), zap.Duration("in", w.backoff.until(err)), zap.Uint64("attempt", w.backoff.failures), zap.Error(err))
	}
}

func (w *writer) succeeded(now time.Time) {
	if failures := w.backoff.succeed(); failures > 0 {
		w.log.Info("all pending rows are written after failed attempts", zap.Uint64("attempt", failures))
	}
	w.lag.fail(0, nil)
	w.lag.markInSync(now)
	w.schedule.cancel(retryFailed)
	if !w.progress.ready {
		w.progress.ready = true
		w.log.Info("first sync is complete", zap.Int("services", len(w.planner.outcomes.byID)))
		if w.opts.Ready != nil {
			w.opts.Ready()
		}
	}
}
