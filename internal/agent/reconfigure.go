package agent

import (
	"context"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// Reconfigure has the loop run change, which may alter what Compiler, NodePorts,
// Health and the mode go by, and then compile every Service anew: what that leaves as
// it was costs no write. An error of change leaves everything as it was.
func (a *Agent) Reconfigure(ctx context.Context, change func(context.Context) error) error {
	var failed error
	err := a.Do(ctx, func(ctx context.Context) {
		if failed = change(ctx); failed != nil {
			return
		}
		a.recompile(ctx)
		a.apply(ctx, false)
	})
	if err != nil {
		return err // the loop may be writing failed just now
	}
	return failed
}

// recompile goes by what is known of the host, and compiles all that was compiled before.
func (a *Agent) recompile(ctx context.Context) {
	now := a.known
	if a.opts.NodePorts != nil {
		now.NodePorts = a.opts.NodePorts(now)
	}
	a.logHost(a.host, now)
	a.move(now)
	if a.opts.Health != nil {
		a.opts.Health.Listen(now.NodePorts) // by new rules, even where the addresses are the same
	}
	a.hostMoved = false
	if a.synced || len(a.services) > 0 {
		a.compileAll(ctx)
	}
}

// Replace has the loop go on with another mode and its periods, for which change has
// made everything ready: every Service is compiled for it, the kernel is read and
// written. What the old mode has in the kernel is left to the new one to take over. An
// error of change leaves everything as it was.
func (a *Agent) Replace(ctx context.Context, mode dataplane.Dataplane, p Periods, change func(context.Context) error) error {
	var failed error
	err := a.Do(ctx, func(ctx context.Context) {
		if failed = change(ctx); failed != nil {
			return
		}
		a.log.Info("mode replaced", zap.String("from", a.opts.Mode.Name()), zap.String("to", mode.Name()))
		a.opts.Mode = mode
		a.goBy(p)
		a.audit.stop()
		a.sample.stop()
		a.loaded, a.adopted, a.audits.running, a.founding = false, false, false, false
		a.contests, a.counts.Conflicts = map[contest]struct{}{}, 0
		a.due.stop()
		a.forgetSchedulers(ctx)
		a.recompile(ctx)
		a.retry.stop()
		a.apply(ctx, true)
	})
	if err != nil {
		return err // the loop may be writing failed just now
	}
	return failed
}

// compileAll compiles all Services that were taken, dirty or not.
func (a *Agent) compileAll(ctx context.Context) {
	all := a.matching(func(*model.Service, []*model.Slice) bool { return true })
	a.compile(ctx, all)
	a.log.Info("all services compiled anew", zap.Int("services", len(all)))
}
