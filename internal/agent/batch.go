package agent

import (
	"context"
	"time"

	"go.uber.org/zap"
)

// onChange takes the changes of the catalog, at once or after the debounce. since is when the first of
// them arrived. Before every source has delivered only a kernel that carried nothing is written.
func (a *Agent) onChange(ctx context.Context, since time.Time) {
	now := time.Now()
	if !a.opts.Catalog.Synced() {
		if a.progress.bootstrapping && a.opts.Catalog.Listing() {
			a.schedule.setIfUnset(takeChanges, now.Add(chunkDelay))
		}
		return
	}
	a.writer.lag.begin(now)
	if !a.progress.synced {
		a.schedule.cancel(takeChanges) // the time of a chunk
	}
	if delay := a.debounce.afterChange(since, now); delay > 0 || a.schedule.isSet(takeChanges) {
		a.schedule.setIfUnset(takeChanges, now.Add(delay))
	} else {
		a.take(ctx)
	}
}

// take compiles the Services that changed, and applies their rows.
func (a *Agent) take(ctx context.Context) {
	if !a.opts.Catalog.Synced() {
		a.syncPartial(ctx)
		return
	}
	began := time.Now()
	select {
	case <-a.opts.Catalog.Wake(): // about changes that are taken now
	default:
	}
	batch := a.opts.Catalog.Take()
	if len(batch.Services) > 0 || batch.NodeChanged {
		defer func() { a.debounce.batchDone(began, time.Now()) }()
	}
	a.progress.invalidateStaleLoad(began)
	a.writer.taken.add(began, batch.Triggers)
	a.scheduleDeferred(batch.Held, time.Now())
	a.planner.setFacts(batch)
	if !a.progress.loaded && !a.planner.host.wasRead {
		_ = a.planner.readHost(ctx) // saves a second compile; load reads again and reports the error
	}
	a.planner.probe(ctx, batch.Services)
	affected, _ := a.planner.applyHost()
	inputs := merged(affected, batch.Services)
	first := !a.progress.synced
	if first {
		a.log.Info("sources in sync", zap.Int("services", len(inputs)), zap.Bool("complete", batch.Complete))
		inputs = a.syncUrgent(ctx, inputs)
	}
	a.progress.synced, a.progress.complete = true, batch.Complete
	a.planner.compile(ctx, inputs)
	a.writer.apply(ctx, first) // the first pass retries what prepare could not write
}

// scheduleDeferred schedules the next batch for when the catalog no longer holds a Service back; the zero
// time is never.
func (a *Agent) scheduleDeferred(due, now time.Time) {
	if due.IsZero() {
		a.schedule.cancel(takeDeferred)
		return
	}
	a.schedule.set(takeDeferred, later(due, now.Add(a.debounce.nextBatchDelay(a.opts.Coalesce, now))))
}

// hostPause is the least time between two readings of the host that events ask for.
const hostPause = 100 * time.Millisecond

// scheduleHostRead makes the machine read soon, once for all events of a moment.
func (a *Agent) scheduleHostRead(context.Context) {
	a.schedule.setIfUnset(readHost, later(time.Now().Add(a.opts.Coalesce), a.planner.host.readAt.Add(hostPause)))
}

// followHost reads this machine and applies what follows from a change.
func (a *Agent) followHost(ctx context.Context) {
	if changed, _ := a.planner.refreshHost(ctx); changed {
		a.writer.apply(ctx, false)
	}
}

// reprobe probes the kernel again for what it refused, and applies what follows from a change.
func (a *Agent) reprobe(ctx context.Context) {
	a.planner.capabilities.reprobe(ctx)
	a.planner.applyRefused()
	if affected, changed := a.planner.applyHost(); changed {
		a.planner.compile(ctx, affected)
		a.writer.apply(ctx, false)
	}
}
