package main

import (
	"context"
	"slices"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/agent"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/firewall"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/nodecheck"
	"github.com/kube-ipvs/kube-ipvs/internal/rulewatch"
)

// watchRules has the loop write rules again that another program removed, until ctx ends.
func (p *program) watchRules(ctx context.Context) error {
	rulewatch.NewWatcher(p.log, p.kernel.own, p.reloadRules).Run(ctx)
	return nil
}

// reloadRules has the loop read all rules and write those that are missing.
func (p *program) reloadRules(ctx context.Context) error { return p.loop.Repair(ctx, p.carrier.reload) }

// servedPollInterval is the time between two questions whether the loop has written most rows.
const servedPollInterval = 500 * time.Millisecond

// clearStrayRules removes stray rules when the rules of this agent are in place, and then once a
// sync period, until ctx ends.
func (p *program) clearStrayRules(ctx context.Context) error {
	stray := rulewatch.NewStrayRules(p.log, func(ctx context.Context) ([]*rules.Handle, error) {
		return rules.Beside(ctx, p.log, rulesOptions(p.live.now(), p.kernel.tables, nil), p.kernel.rules.Backend())
	})
	if !p.afterStart(ctx, time.Minute) { // a row that is refused for good delays it no longer
		return nil
	}
	for pause := servedPollInterval; p.await(ctx, pause, func() bool { return p.loop.Condition().Served }); pause = periods(p.live.now()).AuditPeriod {
		stray.Remove(ctx)
	}
	return nil
}

// watchFirewalls starts when everything was written once: before that, INPUT has no rule of ours.
func (p *program) watchFirewalls(ctx context.Context) error {
	if p.afterStart(ctx, rulewatch.ReadTimeout) {
		p.firewalls.Run(ctx)
	}
	return nil
}

func (p *program) newFirewallWatcher() *rulewatch.FirewallWatcher {
	reader := firewall.CachedReader{Reader: firewall.NewReader(p.kernel.tables)}
	return rulewatch.NewFirewallWatcher(p.log, rulewatch.FirewallOptions{
		Tables: reader.Read,
		Watch:  p.kernel.tables.Watch,
		Frontends: func(ctx context.Context) (out []firewall.Frontend, err error) {
			ids, err := p.loop.Services(ctx)
			if err != nil {
				return nil, err
			}
			return out, p.loop.ServicesInfo(ctx, ids, func(k agent.ServiceInfo) { out = append(out, dialledFrontends(k)...) })
		},
		Facts: func(ctx context.Context) (firewall.Facts, error) {
			h, err := p.loop.HostNow(ctx)
			return nodecheck.FirewallFacts(p.live.now(), p.ipvsMode() != nil, h.Node), err
		},
		Period:  func() time.Duration { return periods(p.live.now()).AuditPeriod },
		Busy:    func() bool { return !p.loop.Condition().Busy.IsZero() },
		Repair:  p.reloadRules,
		Blocked: herald{p.events}.walled,
	})
}

// dialledFrontends returns the frontends of a Service that firewalls are judged for. It leaves
// out frontends without backends, to which no packet gets in any case, and those that another
// Service has.
func dialledFrontends(k agent.ServiceInfo) []firewall.Frontend {
	var out []firewall.Frontend
	for i := range k.Frontends {
		f := &k.Frontends[i]
		kind, dialled := firewall.KindOf(f.Kind.String())
		at := slices.IndexFunc(f.Backends, func(b model.Backend) bool { return b.Weight > 0 })
		if !dialled || at < 0 || slices.ContainsFunc(k.Lost, func(c dataplane.Conflict) bool { return c.Key == f.Key }) {
			continue
		}
		out = append(out, firewall.Frontend{
			Service: k.ID.String(), Kind: kind, Addr: f.Key.Addr, Port: f.Key.Port, Protocol: uint8(f.Key.Protocol), Backend: f.Backends[at].Addr,
		})
	}
	return out
}
