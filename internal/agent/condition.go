package agent

import (
	"sync/atomic"
	"time"
)

// Condition is how the loop fares, as far as a goroutine can tell that must not
// wait for it: a loop that is stuck has one, too.
type Condition struct {
	// Served: a pass has left most of what is wanted in the kernel.
	Served bool
	// Updated is when the latest pass ended that left nothing to do; the zero time
	// before the first.
	Updated time.Time
	// PendingSince is since when something waits to get into the kernel, Busy since when
	// the loop is at one thing; the zero time is not at all.
	PendingSince, Busy time.Time
	// Failures is how often in a row applying has failed, and LastError why.
	Failures  uint64
	LastError string
	// Patience is how long a change may wait, or an apply may take, before it is a fault.
	// It is two audit periods, as kube-proxy's health timeout is two sync periods.
	Patience time.Duration
	// AuditEnded is when the latest audit was complete, the zero time before the first, and
	// AuditTook what it cost. AuditPeriod is the time from one to the next, 0 for none.
	AuditEnded             time.Time
	AuditTook, AuditPeriod time.Duration
	// AuditFailures counts what audits could not read.
	AuditFailures uint64
}

// leastStuck is how long one thing may take however short the audit period is: a first
// sync of a large cluster is one.
const leastStuck = time.Minute

// Late tells whether something waits for longer than it may.
func (c Condition) Late(now time.Time) bool {
	return !c.PendingSince.IsZero() && now.Sub(c.PendingSince) > c.Patience
}

// Stuck tells whether the loop is at one thing for longer than it may.
func (c Condition) Stuck(now time.Time) bool {
	return !c.Busy.IsZero() && now.Sub(c.Busy) > max(c.Patience, leastStuck)
}

// Condition may be called from any goroutine and never waits.
func (a *Agent) Condition() Condition {
	c := Condition{
		Served: a.debt.served.Load(), Updated: moment(&a.debt.paid), PendingSince: moment(&a.debt.since),
		Busy: moment(&a.pulse.since), Patience: a.patience(),
		AuditTook: time.Duration(a.audits.took.Load()), AuditPeriod: max(0, a.opts.AuditPeriod),
		AuditFailures: a.audits.failures.Load(),
	}
	if ended := a.audits.ended.Load(); ended != 0 {
		c.AuditEnded = time.Unix(0, ended)
	}
	if t := a.debt.trouble.Load(); t != nil {
		c.Failures, c.LastError = t.failures, t.reason
	}
	return c
}

func (a *Agent) patience() time.Duration {
	period := a.opts.AuditPeriod
	if period <= 0 {
		period = DefaultAuditPeriod
	}
	return 2 * period
}

func moment(p *atomic.Pointer[time.Time]) time.Time {
	if t := p.Load(); t != nil {
		return *t
	}
	return time.Time{}
}

// pulse knows since when the loop is at what it does now.
type pulse struct{ since atomic.Pointer[time.Time] }

func (p *pulse) during(now time.Time, f func()) {
	p.since.Store(&now)
	defer p.since.Store(nil)
	f()
}
