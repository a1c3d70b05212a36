package main

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/config"
	"github.com/kube-ipvs/kube-ipvs/internal/events"
	"github.com/kube-ipvs/kube-ipvs/internal/printable"
	"github.com/kube-ipvs/kube-ipvs/internal/telemetry"
	"github.com/kube-ipvs/kube-ipvs/scheduler"
)

// reloader applies a changed configuration file to the running agent (internal/DECISIONS.md,
// Configuration reload). It applies settings that can change in place, and logs those
// that need a restart. A file with a mistake changes nothing.
type reloader struct {
	log     *zap.Logger
	level   zap.AtomicLevel
	loader  *config.Loader
	flags   *pflag.FlagSet
	host    string // the host's own name
	live    *live
	asked   config.Config // what the file in force says; live may have to make do with less
	steps   steps
	events  *events.Recorder
	metrics *telemetry.Metrics
}

// steps are what new settings ask of the running agent. The loop takes all but the
// first, between two cycles.
type steps struct {
	reconfigure func(ctx context.Context, change func(context.Context) error) error
	pick        func(ctx context.Context, want scheduler.Spec) (scheduler.Spec, error)
	exclude     func(ctx context.Context, cidrs []netip.Prefix) error
	retune      func(ctx context.Context, from, to config.Config) map[string]error
}

func (p *program) steps() steps {
	return steps{
		reconfigure: p.loop.Reconfigure,
		pick: func(ctx context.Context, want scheduler.Spec) (scheduler.Spec, error) {
			if p.ipvsMode() == nil {
				return want, nil // of no effect in iptables mode, until another mode tries it
			}
			return p.kernel.picker(p.log).pick(ctx, want)
		},
		exclude: func(ctx context.Context, cidrs []netip.Prefix) error { return p.carrier.exclude(ctx, cidrs) },
		retune: func(ctx context.Context, from, to config.Config) map[string]error {
			if p.ipvsMode() == nil {
				return nil
			}
			return p.kernel.retune(ctx, from, to)
		},
	}
}

// run watches the file until ctx ends.
func (r *reloader) run(ctx context.Context) error {
	r.told(r.live.now())
	return r.loader.Watch(ctx, r.log, func() {
		outcome, err := r.reload(ctx)
		if ctx.Err() != nil {
			return
		}
		r.metrics.Reloaded(outcome)
		if err != nil {
			r.log.Warn("new settings not used, the old ones hold", zap.Error(err))
			r.events.Node(events.InvalidConfiguration, "new settings are not used, the old ones hold: "+printable.OneLine(err))
		}
	})
}

// told has the metrics say what is in force.
func (r *reloader) told(c config.Config) {
	if text, err := c.Configz(); err == nil { // else /configz says it
		r.metrics.Settings(text, time.Now())
	}
}

func (r *reloader) reload(ctx context.Context) (telemetry.Reload, error) {
	loaded, err := r.loader.Load(r.host)
	if err != nil {
		return telemetry.Refused, err
	}
	tell(r.log, loaded)
	now, later := config.Compare(r.asked, loaded.Config)
	if len(now) > 0 {
		refused, err := r.adopt(ctx, loaded.Config)
		if err != nil {
			r.loader.Forget() // nothing is wrong with the file
			return telemetry.Refused, err
		}
		now, later = r.withhold(now, later, refused)
		r.told(r.asked)
	}
	if r.live.now().Mode == config.ModeIPTables {
		now = r.withoutIPVS(now)
	}
	if len(now) > 0 {
		r.log.Info("settings changed", zap.Strings("settings", now))
		r.events.Node(events.ConfigurationReloaded, "new settings in force: "+strings.Join(now, ", "))
	}
	if len(later) == 0 {
		return telemetry.Applied, nil
	}
	r.log.Warn("changed settings that need a restart are not in force", zap.Strings("settings", later))
	r.events.Node(events.RestartNeeded, "changed settings that need a restart are not in force: "+strings.Join(later, ", "))
	return telemetry.RestartNeeded, nil
}

// withoutIPVS leaves out the settings that only ipvs mode has, and says so.
func (r *reloader) withoutIPVS(names []string) []string {
	idle := slices.DeleteFunc(slices.Clone(names), func(n string) bool { return !strings.HasPrefix(n, "ipvs") })
	if len(idle) > 0 {
		r.log.Info("changed settings are for ipvs mode, and have no effect in iptables mode", zap.Strings("settings", idle))
	}
	return slices.DeleteFunc(names, func(n string) bool { return strings.HasPrefix(n, "ipvs") })
}

// withhold moves what this process could not set from one list to the other: after a
// restart an init container or a person with more rights may have.
func (r *reloader) withhold(now, later []string, refused map[string]error) (live, restart []string) {
	for _, name := range now {
		if err := refused[name]; err != nil {
			r.log.Warn("setting refused by the node", zap.String("setting", name), zap.Error(err))
			later = append(later, name)
		} else {
			live = append(live, name)
		}
	}
	return live, later
}

// adopt makes settings those of the loop and returns those that the node refused. The
// first step that fails leaves everything as it was.
func (r *reloader) adopt(ctx context.Context, given config.Config) (refused map[string]error, err error) {
	r.adoptAlone(given)
	next := config.Live(r.asked, given)
	asked := next
	err = r.steps.reconfigure(ctx, func(ctx context.Context) (err error) {
		before := r.live.now()
		if next.Scheduler == r.asked.Scheduler {
			next.Scheduler = before.Scheduler // what was found to work for it
		} else if next.Scheduler, err = r.steps.pick(ctx, next.Scheduler); err != nil {
			return fmt.Errorf("scheduler %s: %w", asked.Scheduler, err)
		}
		if !slices.Equal(before.ExcludeCIDRs, next.ExcludeCIDRs) { // it reads all servers
			if err := r.steps.exclude(ctx, next.ExcludeCIDRs); err != nil {
				return fmt.Errorf("exclude ranges: %w", err)
			}
		}
		refused = r.steps.retune(ctx, before, next)
		picked := next.Scheduler
		next = config.Live(r.asked, given, slices.Collect(maps.Keys(refused))...)
		asked, next.Scheduler, next.Mode = next, picked, before.Mode
		r.live.set(next)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if next.Scheduler != asked.Scheduler && r.asked.Scheduler != asked.Scheduler {
		r.events.Node(events.SchedulerUnavailable, fmt.Sprintf("the kernel lacks scheduler %s, using %s", asked.Scheduler, next.Scheduler))
	}
	sayKept(r.log, r.asked.Timeouts, asked.Timeouts)
	r.asked = asked
	return refused, nil
}

// adoptAlone takes what needs no loop, for who looks at one that is stuck.
func (r *reloader) adoptAlone(given config.Config) {
	_ = setLevel(r.level, given) // it was checked
	r.live.change(func(c *config.Config) {
		c.ReadyzWatchBound, c.HealthzWatchBound = given.ReadyzWatchBound, given.HealthzWatchBound
	})
}
