package agent

import (
	"context"
	"errors"
	"math"
	"time"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
)

// apply writes what is pending, if it may, and arranges for what failed. Rows
// that failed before rest until the retry timer fires.
func (a *Agent) apply(ctx context.Context, retry bool) {
	if !a.synced || ctx.Err() != nil || !a.loaded && a.retry.set {
		return
	}
	start := a.begin()
	if err := a.load(ctx); err != nil {
		a.debt.owe(time.Now())
		a.failed(ctx, err, 0, true)
		a.tellPass(start, time.Now(), false, false)
		return
	}
	a.tellAdopted()
	result := a.mode.Apply(ctx, dataplane.ApplyOptions{KeepOrphans: !a.complete, Retry: retry})
	ended := time.Now()
	a.record(start, ended, result)
	a.armAudits()
	a.settleDebt(ended)
	a.tellPass(start, ended, result.Pending == 0, result.Total().Failed == 0 || result.Total().Written() > 0)
	a.tellHealth()
	if result.Paced > 0 {
		a.coalesce.armUnlessSet(a.opts.Coalesce) // with what has changed by then
	}
	switch {
	case result.Pending > result.Paced:
		a.failed(ctx, result.Total().Err(), result.Pending, retry)
	case result.Pending == 0:
		a.succeeded(ended)
	}
	a.opts.Observer.Drains(a.mode.Drains())
	a.wakeWhenDue()
}

// wakeWhenDue arranges for the next pass that the mode asks for by itself.
func (a *Agent) wakeWhenDue() {
	switch due := a.mode.Due(); {
	case due.IsZero():
		a.due.stop()
	case !a.due.set || !due.Equal(a.wakes):
		a.due.arm(max(time.Until(due), a.opts.Coalesce))
		a.wakes = due
	}
}

// load reads the host, makes the mode ready and reads the kernel, once. Without
// knowing whose an address is, nothing is written.
func (a *Agent) load(ctx context.Context) error {
	if a.loaded {
		return nil
	}
	if err := a.needHost(ctx); err != nil {
		return err
	}
	if err := a.mode.Start(ctx); err != nil {
		return err
	}
	if err := a.mode.Load(ctx); err != nil {
		return err
	}
	a.loaded = true
	return nil
}

// begin is when the pass began that is to be applied: when its changes were taken,
// or now.
func (a *Agent) begin() time.Time {
	start := a.began
	a.began = time.Time{}
	if start.IsZero() {
		start = time.Now()
	}
	return start
}

// tellPass reports one pass. What was written ends the wait of the changes of endpoints
// it was for: a row that the kernel refuses for good must not hold up the measure of
// all others.
func (a *Agent) tellPass(start, ended time.Time, ok, written bool) {
	p := Pass{At: start, Took: ended.Sub(start), OK: ok}
	if written {
		p.Triggers, a.triggers = a.triggers, nil
	}
	a.opts.Observer.Pass(p)
}

// failed schedules the next try of what is pending. An appointment that stands
// is kept, whatever changes meanwhile. Without an error nothing new has failed.
func (a *Agent) failed(ctx context.Context, err error, pending int, retry bool) {
	if ctx.Err() != nil {
		return // told to stop: what was interrupted is no failure
	}
	if retry || !a.retry.set {
		a.backoff = min(max(a.backoff*2, a.opts.RetryMin), a.opts.RetryMax)
		a.retry.arm(min(a.backoff, within(err)))
	}
	if err == nil {
		return
	}
	a.stats.failures++
	news := a.stats.lastError == nil || a.stats.lastError.Error() != err.Error()
	a.stats.lastError = err
	a.debt.trouble.Store(&trouble{failures: a.stats.failures, reason: err.Error()})
	// What is tried more often than the backoff says is not told more often.
	if news || retry && time.Since(a.warned) >= a.backoff/2 {
		a.warned = time.Now()
		a.log.Warn("apply failed, will retry",
			zap.Int("pending", pending), zap.Duration("in", min(a.backoff, within(err))), zap.Uint64("attempt", a.stats.failures), zap.Error(err))
	}
}

// within is how soon an error asks to be tried again whose cause is over all of a sudden and
// costs little to ask for; other errors never ask.
func within(err error) time.Duration {
	var e interface{ RetryWithin() time.Duration }
	if errors.As(err, &e) {
		return e.RetryWithin()
	}
	return math.MaxInt64
}

func (a *Agent) succeeded(now time.Time) {
	if a.stats.lastError != nil {
		a.log.Info("everything pending is written again", zap.Uint64("attempt", a.stats.failures))
	}
	a.backoff, a.stats.failures, a.stats.lastError = 0, 0, nil
	a.debt.trouble.Store(nil)
	a.inStep(now)
	a.retry.stop()
	if !a.stats.ready {
		a.stats.ready = true
		a.log.Info("first sync done", zap.Int("services", len(a.services)))
		if a.opts.Ready != nil {
			a.opts.Ready()
		}
	}
}

// inStep notes that nothing is left to do.
func (a *Agent) inStep(now time.Time) { a.debt.paid.Store(&now) }
