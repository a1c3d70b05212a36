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
		if a.synced {
			a.compileAll()
		}
		a.apply(ctx, false)
	})
	if err != nil {
		return err // the loop may be writing failed just now
	}
	return failed
}

// compileAll compiles what the catalog has, dirty or not.
func (a *Agent) compileAll() {
	all := a.opts.Catalog.Matching(func(*model.Service) bool { return true })
	a.compile(all)
	a.log.Info("all services compiled anew", zap.Int("services", len(all)))
}
