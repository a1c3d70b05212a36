package agent

import (
	"context"
	"math/rand/v2"
	"time"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
)

// The kernel reports few losses of rows, so the loop looks for them in two ways. Once a sync period
// an audit reads all rows, in pieces. Once a second a sample reads a few signs of a large loss.

// auditSlice bounds one piece of an audit, so that a change waits no longer.
const auditSlice = 10 * time.Millisecond

// scheduleAudit schedules the next piece of an audit, or the next audit.
func (a *Agent) scheduleAudit(now time.Time) {
	if at, ok := a.audit.next(now, len(a.audit.requests) > 0); ok {
		a.schedule.set(auditPiece, at)
	}
}

// runAudit runs one piece of an audit and repairs what it found. An audit begins with the host, because
// only some of its changes make events.
func (a *Agent) runAudit(ctx context.Context) {
	hostChanged := false
	if !a.audit.running {
		a.audit.start(time.Now())
		var err error
		if hostChanged, err = a.planner.refreshHost(ctx); err != nil {
			a.auditFailed(ctx, err)
		}
	}
	start := time.Now()
	audited, err := a.mode.Audit(ctx, auditSlice)
	now := time.Now()
	a.audit.cost += audited.Cost
	if err != nil && ctx.Err() == nil {
		a.log.Warn("part of the audit failed, will be tried again", zap.Error(err))
		a.auditFailed(ctx, err)
	}
	if audited.Done {
		a.audit.complete(now)
	}
	a.scheduleAudit(now)
	switch {
	case a.recordDrift(audited.Drift) || hostChanged:
		a.writer.apply(ctx, false)
	case audited.Done && err == nil && a.audit.lastError == nil && !a.schedule.isSet(retryFailed): // a quiet node is in sync, too
		a.writer.lag.markInSync(now)
		a.writer.reportPass(start, now, true, true)
	}
	if audited.Done && len(a.audit.answering) > 0 {
		a.audit.answer(a.mode.Tables(), a.writer.backoff.lastError)
	}
}

// auditFailed records what an audit could not read.
func (a *Agent) auditFailed(ctx context.Context, err error) {
	if ctx.Err() == nil { // an audit that is interrupted by the agent's end has not failed
		a.audit.fail(err)
	}
}

// recordDrift reports rows that were found changed, and whether there are any.
func (a *Agent) recordDrift(drift dataplane.Drift) bool {
	if drift.Total() == 0 {
		return false
	}
	a.opts.Observer.Drift(drift)
	a.audit.drifted += uint64(drift.Total())
	a.log.Info("drift found, will be repaired", zap.Any("rows", drift))
	if len(a.audit.answering) > 0 {
		a.audit.found(drift, a.mode.Pending(auditRows))
	}
	return true
}

// runSample takes a sample. Where it shows a loss that is likely not the only one, an audit follows at
// once. The audit reports what the sample cannot read.
func (a *Agent) runSample(ctx context.Context) {
	a.schedule.set(takeSample, time.Now().Add(samplePeriod*9/10+rand.N(samplePeriod/5))) //nolint:gosec // no secret
	if a.audit.running {
		return // the audit reads everything
	}
	sampled, err := a.mode.Sample(ctx)
	if err != nil && ctx.Err() == nil {
		a.log.Debug("sampling the kernel for drift failed", zap.Error(err))
	}
	if sampled.Doubt {
		a.schedule.set(auditPiece, time.Now())
	}
	if a.recordDrift(sampled.Drift) {
		a.writer.apply(ctx, false)
	}
}
