package daemon

import (
	"context"
	"slices"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/agent"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/firewall"
	"github.com/kube-ipvs/kube-ipvs/internal/healthcheck"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/nodecheck"
	"github.com/kube-ipvs/kube-ipvs/internal/rulewatch"
	"github.com/kube-ipvs/kube-ipvs/internal/wiring"
)

// watchRules makes the loop write rules again that another program removed, until ctx ends.
func (d *daemon) watchRules(ctx context.Context) error {
	if d.kernel.backend != nil {
		return d.watchTables(ctx)
	}
	rulewatch.NewWatcher(d.log, d.kernel.own, d.reloadRules).Run(ctx)
	return nil
}

// watchTables makes the loop write again what another program took out of our tables of nftables.
func (d *daemon) watchTables(ctx context.Context) error {
	rulewatch.NewTableWatcher(d.log, rulewatch.TableOptions{
		Watch: d.kernel.tables.Watch,
		Own:   d.kernel.nft.Wrote,
		Repair: func(ctx context.Context) (lost int, err error) {
			err = d.loop.Repair(ctx, func(ctx context.Context) error {
				drift, err := d.mode.ipvs.ReloadTables(ctx)
				lost = drift.Total()
				d.metrics.Drift(drift)
				return err
			})
			return lost, err
		},
		Lost: d.metrics.Taken,
	}).Run(ctx)
	return nil
}

// reloadRules makes the loop read all rules and write those that are missing.
func (d *daemon) reloadRules(ctx context.Context) error { return d.loop.Repair(ctx, d.mode.reload) }

// servedPollInterval is the time between two questions whether the loop has written most rows.
const servedPollInterval = 500 * time.Millisecond

// clearStrayRules removes stray rules when the rules of this agent are in place, and then once a
// sync period, until ctx ends.
func (d *daemon) clearStrayRules(ctx context.Context) error {
	if d.kernel.backend != nil {
		return nil // leaveOtherRules removes those of all backends
	}
	stray := rulewatch.NewStrayRules(d.log, func(ctx context.Context) ([]*rules.Handle, error) {
		return rules.Beside(ctx, d.log, wiring.RulesOptions(d.live.now(), d.kernel.tables, nil), d.kernel.rules.Backend())
	})
	if !d.afterStart(ctx, time.Minute) { // a row that is always refused no longer delays it
		return nil
	}
	for pause := servedPollInterval; await(ctx, pause, func() bool { return d.loop.Condition().Served }); pause = periods(d.live.now()).AuditPeriod {
		stray.Remove(ctx)
	}
	return nil
}

// watchFirewalls starts when everything was written once: before that, INPUT has no rule of ours.
func (d *daemon) watchFirewalls(ctx context.Context) error {
	if d.afterStart(ctx, rulewatch.ReadTimeout) {
		d.firewalls.Run(ctx)
	}
	return nil
}

func (d *daemon) newFirewallWatcher() *rulewatch.FirewallWatcher {
	reader := firewall.CachedReader{Reader: firewall.NewReader(d.kernel.tables)}
	return rulewatch.NewFirewallWatcher(d.log, rulewatch.FirewallOptions{
		Tables: reader.Read,
		Watch:  d.kernel.tables.Watch,
		Frontends: func(ctx context.Context) (out []firewall.Frontend, err error) {
			ids, err := d.loop.Services(ctx)
			if err != nil {
				return nil, err
			}
			if d.kernel.backend != nil {
				out = healthFrontends(d.healthPorts.Status())
			}
			return out, d.loop.ServicesInfo(ctx, ids, func(k agent.ServiceInfo) { out = append(out, dialledFrontends(k)...) })
		},
		Facts: func(ctx context.Context) (firewall.Facts, error) {
			h, err := d.loop.HostNow(ctx)
			return nodecheck.FirewallFacts(d.live.now(), d.mode.ipvs != nil, h.Node), err
		},
		Period:  func() time.Duration { return periods(d.live.now()).AuditPeriod },
		Busy:    func() bool { return !d.loop.Condition().Busy.IsZero() },
		Repair:  d.reloadRules,
		Blocked: eventReporter{d.events}.firewallBlocks,
	})
}

// healthFrontends returns the health-check node ports, as firewalls see them. Rules of iptables accept
// them before the filters of others; an accept of nftables does not.
func healthFrontends(ports []healthcheck.PortStatus) []firewall.Frontend {
	var out []firewall.Frontend
	for _, p := range ports {
		out = append(out, firewall.Frontend{
			Service: p.Service.String(), Kind: firewall.NodePort, Addr: p.Address.Addr(), Port: p.Address.Port(), Protocol: uint8(model.TCP),
		})
	}
	return out
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
