package agent

import (
	"context"

	"go.uber.org/zap"

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

// compileAll compiles all Services that were taken, dirty or not.
func (a *Agent) compileAll(ctx context.Context) {
	all := a.matching(func(*model.Service, []*model.Slice) bool { return true })
	a.compile(ctx, all)
	a.log.Info("all services compiled anew", zap.Int("services", len(all)))
}
