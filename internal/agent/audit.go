package agent

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
)

// The kernel tells of few of its losses, so the loop looks for them in two ways: once a sync
// period an audit reads everything, in pieces, and once a second a sample reads a few signs
// that much is gone.

const (
	// auditSlice bounds one stretch of an audit, so that a change waits no longer.
	auditSlice = 10 * time.Millisecond
	// samplePeriod is the time between two samples, give or take a tenth, so that the
	// agents of many nodes, and a program that works once a second, do not keep step.
	samplePeriod = time.Second
	// auditRows bounds how many rows of a table a report of an audit names.
	auditRows = 20
)

// AuditRecord is when the latest audit was complete, and what it cost.
type AuditRecord struct {
	Ended time.Time `json:"ended"`
	// Seconds is how long it took, CostSeconds how long the loop, and who reads beside it,
	// were busy with it: an upper bound of the time of a processor.
	Seconds     float64 `json:"seconds"`
	CostSeconds float64 `json:"costSeconds"`
}

// AuditReport is what one audit that was asked for found, and what became of it.
type AuditReport struct {
	AuditRecord
	// Tables are those with rows that were not as they should be.
	Tables []AuditTable `json:"tables"`
	// Unread is what could not be read, so that drift there is not seen.
	Unread string `json:"unread,omitempty"`
	// LastError is why rows are not repaired.
	LastError string `json:"lastError,omitempty"`
}

// AuditTable is what an audit found in one table.
type AuditTable struct {
	Table string `json:"table"`
	// Found counts the rows that drifted, Remaining those of the table that are still not in
	// place after the repair, whatever the reason.
	Found     int `json:"found"`
	Remaining int `json:"remaining"`
	// Rows are the changes that repair it, as an operator would type them; More is how many
	// there are besides.
	Rows []string `json:"rows"`
	More int      `json:"more"`
}

// audits knows the audit in progress, what the latest one cost, and who waits for one.
// took, ended and failures are for any goroutine.
type audits struct {
	running bool
	began   time.Time
	spent   time.Duration // by the audit in progress
	failed  error         // what that could not read
	// waiting have asked for an audit that begins after their question, answering are those
	// for whom the one in progress is, and report is what they are told.
	waiting, answering []chan<- AuditReport
	report             AuditReport

	failures    atomic.Uint64
	took, ended atomic.Int64 // nanoseconds, the latter since 1970
}

// begin starts an audit, for all who have asked for one.
func (r *audits) begin(now time.Time) {
	r.running, r.began, r.spent = true, now, 0
	r.answering, r.waiting = append(r.answering, r.waiting...), nil
	r.report = AuditReport{Tables: []AuditTable{}}
}

// done ends an audit.
func (r *audits) done(now time.Time) {
	r.running = false
	r.took.Store(int64(r.spent))
	r.ended.Store(now.UnixNano())
	r.report.AuditRecord = AuditRecord{Ended: now, Seconds: now.Sub(r.began).Seconds(), CostSeconds: r.spent.Seconds()}
}

// record is that of the latest audit; nil before the first.
func (r *audits) record() *AuditRecord {
	if r.ended.Load() == 0 {
		return nil
	}
	a := r.report.AuditRecord
	return &a
}

// armAudits begins the time to the first audit and to the first sample.
func (a *Agent) armAudits() {
	period := a.opts.AuditPeriod
	if period <= 0 {
		return
	}
	a.audit.armUnlessSet(period)
	a.sample.armUnlessSet(samplePeriod)
}

// inspect goes on with the audit for a moment and repairs what it found. An audit begins
// with the host, of which only some changes make events.
func (a *Agent) inspect(ctx context.Context) {
	moved := false
	if !a.audits.running {
		a.audits.begin(time.Now())
		var err error
		if moved, err = a.readAgain(ctx); err != nil {
			a.auditFailed(ctx, err)
		}
	}
	start := time.Now()
	audited, err := a.mode.Audit(ctx, auditSlice)
	now := time.Now()
	a.audits.spent += audited.Cost
	if err != nil && ctx.Err() == nil {
		a.log.Warn("part of the audit failed, will be read again", zap.Error(err))
		a.auditFailed(ctx, err)
	}
	if audited.Done {
		a.audits.done(now)
		a.stats.audits++
		a.stats.auditError, a.audits.failed = a.audits.failed, nil
	}
	a.nextAudit(now)
	switch {
	case a.noteDrift(audited.Drift) || moved:
		a.apply(ctx, false)
	case audited.Done && err == nil && a.stats.auditError == nil && !a.retry.set: // a quiet node is in step all the same
		a.inStep(now)
		a.tellPass(start, now, true, true)
	}
	if audited.Done {
		a.answerAudit()
	}
}

// nextAudit sets the time for the next piece, or for the next audit: a period after the last
// one began, and no sooner than after as much rest as that took, up to a period.
func (a *Agent) nextAudit(now time.Time) {
	period := a.opts.AuditPeriod
	switch {
	case a.audits.running || len(a.audits.waiting) > 0:
		a.audit.arm(0)
	case period > 0:
		took := now.Sub(a.audits.began)
		a.audit.arm(max(period-took, min(took, period)))
	}
}

// noteDrift tells of rows that were found changed, if there are any.
func (a *Agent) noteDrift(drift dataplane.Drift) bool {
	if drift.Total() == 0 {
		return false
	}
	a.opts.Observer.Drift(drift)
	a.stats.drifted += uint64(drift.Total())
	a.log.Info("drift found, will be repaired", zap.Any("rows", drift))
	if len(a.audits.answering) > 0 {
		a.audits.report.found(drift, a.mode.Pending(auditRows))
	}
	return true
}

// found adds to a report what one piece found; pending is what is to be written for it.
func (r *AuditReport) found(drift dataplane.Drift, pending []dataplane.PendingTable) {
	for _, name := range slices.Sorted(maps.Keys(drift)) {
		t, n := r.table(name), drift[name]
		t.Found += n
		if i := slices.IndexFunc(pending, func(p dataplane.PendingTable) bool { return p.Table == name }); i >= 0 {
			for _, row := range pending[i].Rows[:min(len(pending[i].Rows), n, max(0, auditRows-len(t.Rows)))] {
				t.Rows = append(t.Rows, row.Text())
			}
		}
		t.More = t.Found - len(t.Rows)
	}
}

// table is that of a name, which is added if it has none yet.
func (r *AuditReport) table(name string) *AuditTable {
	for i := range r.Tables {
		if r.Tables[i].Table == name {
			return &r.Tables[i]
		}
	}
	r.Tables = append(r.Tables, AuditTable{Table: name, Rows: []string{}})
	return &r.Tables[len(r.Tables)-1]
}

// answerAudit tells those who asked for the audit that is complete.
func (a *Agent) answerAudit() {
	if len(a.audits.answering) == 0 {
		return
	}
	r, remaining := a.audits.report, 0
	for _, t := range a.mode.Tables() {
		for i := range r.Tables {
			if r.Tables[i].Table == t.Table {
				r.Tables[i].Remaining = t.Updates + t.Deletes
				remaining += r.Tables[i].Remaining
			}
		}
	}
	if a.stats.auditError != nil {
		r.Unread = a.stats.auditError.Error()
	}
	if a.stats.lastError != nil && remaining > 0 {
		r.LastError = a.stats.lastError.Error()
	}
	for i := range r.Tables {
		slices.Sort(r.Tables[i].Rows)
	}
	for _, c := range a.audits.answering {
		c <- r // each has room for one
	}
	a.audits.answering = nil
}

// AuditNow has the loop begin an audit, after the one in progress, and waits until it is
// complete and what it found was written, or refused. It fails while nothing is written yet.
func (a *Agent) AuditNow(ctx context.Context) (AuditReport, error) {
	answer := make(chan AuditReport, 1)
	var early error
	err := a.Do(ctx, func(context.Context) {
		if !a.loaded || !a.synced {
			early = fmt.Errorf("nothing to audit yet: the sources have not delivered, or the kernel was not read")
			return
		}
		a.audits.waiting = append(a.audits.waiting, answer)
		a.nextAudit(time.Now())
	})
	if err != nil {
		return AuditReport{}, err // the loop may be writing early just now
	}
	if early != nil {
		return AuditReport{}, early
	}
	select {
	case r := <-answer:
		return r, nil
	case <-ctx.Done():
		return AuditReport{}, context.Cause(ctx)
	}
}

// auditFailed notes what an audit could not read. It is told of until one reads everything.
func (a *Agent) auditFailed(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return // told to stop: what was interrupted is no failure
	}
	a.audits.failures.Add(1)
	a.audits.failed, a.stats.auditError = err, err
}

// lookForLoss takes a sample. Where it shows a loss that is likely not the only one, an
// audit follows at once. What it cannot read is for the audit to tell.
func (a *Agent) lookForLoss(ctx context.Context) {
	a.sample.arm(samplePeriod*9/10 + rand.N(samplePeriod/5)) //nolint:gosec // no secret
	if a.audits.running {
		return // which reads it all
	}
	sampled, err := a.mode.Sample(ctx)
	if err != nil && ctx.Err() == nil {
		a.log.Debug("sample for drift failed", zap.Error(err))
	}
	if sampled.Doubt {
		a.audit.arm(0)
	}
	if a.noteDrift(sampled.Drift) {
		a.apply(ctx, false)
	}
}
