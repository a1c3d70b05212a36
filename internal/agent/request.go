package agent

import (
	"context"
	"errors"
	"time"
)

// This file has the requests of other goroutines that change something.

// HostChanged makes the loop read the addresses of this machine soon, once for all events of a moment. It
// never blocks and may be called from any goroutine.
func (a *Agent) HostChanged() {
	select {
	case a.hostEvents <- struct{}{}:
	default: // an event waits already
	}
}

// Repair makes the loop run f, which makes rows pending that another process took away. The loop writes
// them soon, together with other rows that are lost in that moment.
func (a *Agent) Repair(ctx context.Context, f func(context.Context) error) error {
	var failed error
	err := a.Do(ctx, func(ctx context.Context) {
		failed = f(ctx)
		a.schedule.setRepair(time.Now().Add(a.opts.Coalesce))
	})
	if err != nil {
		return err // the loop may be writing failed just now
	}
	return failed
}

// Sweep is Repair for f that removes the rows of another mode. Status has its error until it succeeds.
func (a *Agent) Sweep(ctx context.Context, f func(context.Context) error) error {
	return a.Repair(ctx, func(ctx context.Context) error {
		err := f(ctx)
		if ctx.Err() != nil {
			return err
		}
		if a.writer.stats.sweepError = err; err != nil {
			a.audit.failures.Add(1)
		}
		return err
	})
}

// Reconfigure makes the loop run change, which may alter the settings of Compiler, NodePorts, Health and the
// mode. Then the loop compiles every Service again; a row that stays the same is not written. An error of
// change leaves everything as it was.
func (a *Agent) Reconfigure(ctx context.Context, change func(context.Context) error) error {
	var failed error
	err := a.Do(ctx, func(ctx context.Context) {
		if failed = change(ctx); failed != nil {
			return
		}
		a.planner.recompileAll(ctx)
		a.writer.apply(ctx, false)
	})
	if err != nil {
		return err // the loop may be writing failed just now
	}
	return failed
}

// Adjust makes the loop run f, which changes what the mode wants without a change of Services, and write
// the rows that became pending.
func (a *Agent) Adjust(ctx context.Context, f func()) error {
	return a.Do(ctx, func(ctx context.Context) {
		f()
		a.writer.apply(ctx, false)
	})
}

var errNotLoaded = errors.New("nothing to audit yet: the sources are not in sync, or the kernel has not been read")

// AuditNow makes the loop run an audit, after the one in progress, and blocks until it is complete and the
// rows that it found are written, or refused. It fails before the first pass.
func (a *Agent) AuditNow(ctx context.Context) (AuditReport, error) {
	answer := make(chan AuditReport, 1)
	var failed error
	err := a.Do(ctx, func(context.Context) {
		if !a.progress.loaded || !a.progress.synced {
			failed = errNotLoaded
			return
		}
		a.audit.requests = append(a.audit.requests, answer)
		a.scheduleAudit(time.Now())
	})
	if err != nil {
		return AuditReport{}, err // the loop may be writing failed just now
	}
	if failed != nil {
		return AuditReport{}, failed
	}
	select {
	case r := <-answer:
		return r, nil
	case <-ctx.Done():
		return AuditReport{}, context.Cause(ctx)
	}
}
