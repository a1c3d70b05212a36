package daemon

import (
	"context"
	"runtime/pprof"
)

// A task is a part of the daemon. Run returns when ctx ends, or when the part cannot continue,
// which ends the daemon.
type task struct {
	name string
	run  func(context.Context) error
}

// String returns the name of the task.
func (t task) String() string { return t.name }

// Run runs the task. Profiles show its goroutines with the label "task".
func (t task) Run(ctx context.Context) (err error) {
	pprof.Do(ctx, pprof.Labels("task", t.String()), func(ctx context.Context) { err = t.run(ctx) })
	return err
}
