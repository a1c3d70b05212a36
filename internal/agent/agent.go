package agent

import (
	"context"

	"go.uber.org/zap"
)

// An Agent is the loop. Its fields belong to the goroutine in Run, but for posts, hostEvents, watchdog,
// writer.lag and the atomics of audit.
type Agent struct {
	*shared
	posts      chan func(context.Context)
	hostEvents chan struct{} // the addresses of this machine may have changed
	debounce   debounce
	planner    planner
	writer     writer
	audit      audits
	watchdog   watchdog
}

// shared has the parts that Agent, planner and writer use.
type shared struct {
	opts     Options
	mode     mode
	log      *zap.Logger
	reporter reporter
	schedule schedule
	progress progress
}

// New returns an agent that has not begun.
func New(o Options) *Agent {
	o.setDefaults()
	log := o.Log.Named("agent")
	s := &shared{opts: o, mode: openMode(o.Mode), log: log, reporter: newReporter(log, o.Events)}
	a := &Agent{
		shared:     s,
		posts:      make(chan func(context.Context)),
		hostEvents: make(chan struct{}, 1),
		debounce:   debounce{coalesce: o.Coalesce, minPeriod: o.MinPeriod},
		planner:    newPlanner(s),
		audit:      audits{auditSchedule: auditSchedule{period: o.AuditPeriod}},
	}
	a.writer = writer{shared: s, planner: &a.planner, backoff: backoff{least: o.RetryMin, most: o.RetryMax}}
	return a
}
