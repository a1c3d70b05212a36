package agent

import (
	"context"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/catalog"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// readHost reads this machine. After an error the last reading stays in force: a read error is never "no
// addresses".
func (p *planner) readHost(ctx context.Context) error {
	p.host.readAt = time.Now()
	m, err := readMachine(ctx, p.opts.Host, p.opts.APIServers)
	if err == nil {
		p.host.setMachine(m)
	}
	return err
}

// needHost reads this machine unless that was done before.
func (p *planner) needHost(ctx context.Context) error {
	if p.host.wasRead {
		return nil
	}
	if err := p.readHost(ctx); err != nil {
		return err
	}
	affected, _ := p.applyHost()
	p.compile(ctx, affected)
	return nil
}

// refreshHost reads this machine, compiles the Services that a change affects, and reports whether
// anything changed. The next audit reads again what cannot be read now.
func (p *planner) refreshHost(ctx context.Context) (changed bool, err error) {
	if err := p.readHost(ctx); err != nil {
		if ctx.Err() == nil {
			p.log.Warn("reading the addresses of this machine failed, the last known ones stay in use", zap.Error(err))
		}
		return false, err
	}
	affected, changed := p.applyHost()
	p.compile(ctx, affected)
	return changed, nil
}

// applyHost makes the known host the one to compile for. It returns the Services that its change affects;
// before the sources are in sync only those that are served already, because the others are still to be
// taken.
func (p *planner) applyHost() (affected []catalog.Input, changed bool) {
	now, changed := p.host.change()
	if !changed {
		return nil, false
	}
	before := p.host.current
	p.setHost(now)
	return p.matching(p.opts.Affects(before, now)), true
}

// setHost replaces the host to compile for.
func (p *planner) setHost(now model.Host) {
	before := p.host.current
	p.reporter.logHost(before, now)
	p.host.current, p.compiler = now, p.opts.Compiler(now)
	p.mode.SetHost(now)
	if !slices.Equal(before.NodePorts, now.NodePorts) {
		p.health.listen(now.NodePorts)
	}
}

// matching returns the Services that the catalog handed over before and that match.
func (p *planner) matching(match func(*model.Service, []*model.Slice) bool) []catalog.Input {
	inputs := p.opts.Catalog.Matching(match)
	if p.progress.synced {
		return inputs
	}
	return slices.DeleteFunc(inputs, func(in catalog.Input) bool {
		_, served := p.outcomes.byID[in.ID]
		return !served
	})
}

// recompileAll compiles every Service that was taken before, for the latest host.
func (p *planner) recompileAll(ctx context.Context) {
	now := p.host.latest()
	p.host.changed = false
	p.setHost(now)
	p.health.listen(now.NodePorts) // by new rules, even where the addresses are the same
	if !p.progress.synced && len(p.outcomes.byID) == 0 {
		return
	}
	all := p.matching(func(*model.Service, []*model.Slice) bool { return true })
	p.compile(ctx, all)
	p.log.Info("all services compiled again", zap.Int("services", len(all)))
}
