package agent

import (
	"sync/atomic"
	"time"
)

// A Condition is the state of the loop that any goroutine can read without waiting for it: also that of a
// loop that is stuck.
type Condition struct {
	// Served: a pass has left most of the desired rows in the kernel.
	Served bool
	// Updated is when the latest pass ended that left nothing to do; the zero time before the first.
	Updated time.Time
	// PendingSince is since when a change waits to get into the kernel, Busy since when the loop runs its
	// current step; the zero time is not at all.
	PendingSince, Busy time.Time
	// Failures is how often in a row applying has failed, and LastError why.
	Failures  uint64
	LastError string
	// Patience is how long a change may wait, or a pass may take, before it is a fault: two audit periods,
	// as kube-proxy's health timeout is two sync periods.
	Patience time.Duration
	// AuditEnded is when the latest audit was complete, the zero time before the first, and AuditTook its
	// cost. AuditPeriod is the time from one to the next, 0 for none.
	AuditEnded             time.Time
	AuditTook, AuditPeriod time.Duration
	// AuditFailures counts the audits, or parts of them, that could not be read.
	AuditFailures uint64
}

// minStuck is how long a step may take however short the audit period is, such as the first sync of a
// large cluster.
const minStuck = time.Minute

// Late reports whether a change waits for longer than Patience.
func (c Condition) Late(now time.Time) bool {
	return !c.PendingSince.IsZero() && now.Sub(c.PendingSince) > c.Patience
}

// Stuck reports whether the loop runs one step for longer than it may.
func (c Condition) Stuck(now time.Time) bool {
	return !c.Busy.IsZero() && now.Sub(c.Busy) > max(c.Patience, minStuck)
}

// Condition may be called from any goroutine and never blocks.
func (a *Agent) Condition() Condition {
	c := Condition{
		Served: a.writer.lag.served.Load(), Updated: timeIn(&a.writer.lag.inSync), PendingSince: timeIn(&a.writer.lag.since),
		Busy: timeIn(&a.watchdog.since), Patience: a.opts.patience(),
		AuditPeriod: max(0, a.opts.AuditPeriod), AuditFailures: a.audit.failures.Load(),
	}
	c.AuditEnded, c.AuditTook = a.audit.latest()
	if e := a.writer.lag.applyError.Load(); e != nil {
		c.Failures, c.LastError = e.failures, e.reason
	}
	return c
}

// Healthy reports whether traffic may be sent to this node: Services are in the kernel, and no change has
// waited for longer than two audit periods. It may be called from any goroutine, and a stuck loop does
// not block it.
func (a *Agent) Healthy() bool {
	c := a.Condition()
	return c.Served && !c.Late(time.Now())
}

func (o *Options) patience() time.Duration {
	period := o.AuditPeriod
	if period <= 0 {
		period = DefaultAuditPeriod
	}
	return 2 * period
}

func timeIn(p *atomic.Pointer[time.Time]) time.Time {
	if t := p.Load(); t != nil {
		return *t
	}
	return time.Time{}
}

// A watchdog has the time at which the loop began its current step. Any goroutine may read it.
type watchdog struct{ since atomic.Pointer[time.Time] }

func (w *watchdog) runAction(now time.Time, f func()) {
	w.since.Store(&now)
	defer w.since.Store(nil)
	f()
}

// A syncLag has the time since which a change waits for the kernel. The loop writes it, and any goroutine
// may read it.
type syncLag struct {
	served     atomic.Bool // a pass has left most of the desired rows in place
	since      atomic.Pointer[time.Time]
	inSync     atomic.Pointer[time.Time]  // the end of the latest pass that left nothing to do
	applyError atomic.Pointer[applyError] // nil is none
}

// An applyError is why passes fail.
type applyError struct {
	failures uint64
	reason   string
}

// begin records that a change waits, unless one does already.
func (l *syncLag) begin(now time.Time) {
	if l.since.Load() == nil {
		l.since.CompareAndSwap(nil, &now)
	}
}

// update records a pass that left so many of the desired rows missing. A few rows that the kernel
// always refuses are no reason to turn away the traffic of all Services; half of the desired rows
// is.
func (l *syncLag) update(desired, missing int, now time.Time) {
	if 2*missing > desired {
		l.begin(now)
		return
	}
	l.served.Store(true)
	l.since.Store(nil)
}

// markInSync records that nothing is left to do.
func (l *syncLag) markInSync(now time.Time) { l.inSync.Store(&now) }

// fail records why passes fail; a reason of nil ends that.
func (l *syncLag) fail(failures uint64, reason error) {
	if reason == nil {
		l.applyError.Store(nil)
	} else {
		l.applyError.Store(&applyError{failures: failures, reason: reason.Error()})
	}
}
