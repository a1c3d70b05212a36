package agent

import (
	"context"
	"time"
)

// Run is the loop. It returns nil when ctx ends, and leaves the kernel as it is.
func (a *Agent) Run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	a.watchdog.runAction(time.Now(), func() {
		a.prepare(ctx)
		if !a.opts.Catalog.Synced() {
			a.syncPartial(ctx) // mostly the API server's own Service, which a source lists first
		}
	})
	for {
		next := a.wait(ctx, timer)
		if next == nil {
			return nil
		}
		a.watchdog.runAction(time.Now(), func() { next(ctx) })
	}
}

// wait blocks until there is something to do and returns that, nil when ctx ends. The timer is for it
// alone.
func (a *Agent) wait(ctx context.Context, timer *time.Timer) func(context.Context) {
	next, at, ok := a.schedule.next()
	var due <-chan time.Time
	if ok {
		timer.Reset(time.Until(at))
		due = timer.C
	}
	select {
	case <-ctx.Done():
		return nil
	case since := <-a.opts.Catalog.Wake():
		return func(ctx context.Context) { a.onChange(ctx, since) }
	case f := <-a.posts:
		return f
	case <-a.hostEvents:
		return a.scheduleHostRead
	case <-due:
		a.schedule.begin(next, time.Now())
		return a.stepOf(next)
	}
}

// stepOf returns the step that runs an action.
func (a *Agent) stepOf(next action) func(context.Context) {
	switch next {
	case retryFailed:
		return func(ctx context.Context) { a.writer.apply(ctx, true) }
	case repairLost, applyDue:
		return func(ctx context.Context) { a.writer.apply(ctx, false) }
	case readHost:
		return a.followHost
	case probeAgain:
		return a.reprobe
	case auditPiece:
		return a.runAudit
	case takeSample:
		return a.runSample
	default: // takeChanges, takeDeferred
		return a.take
	}
}

// Do makes the loop run f between two steps and blocks until f has returned. It fails when ctx ends first,
// as it does when the loop is stuck or has ended.
func (a *Agent) Do(ctx context.Context, f func(context.Context)) error {
	if ctx.Err() != nil { // an idle loop would run f all the same
		return context.Cause(ctx)
	}
	done := make(chan struct{})
	select {
	case a.posts <- func(ctx context.Context) { defer close(done); f(ctx) }:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
