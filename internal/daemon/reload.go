package daemon

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
	live    *liveConfig
	asked   config.Config // the settings of the file in force; live may differ where the node refused some
	steps   steps
	events  *events.Recorder
	metrics *telemetry.Metrics
}

// steps apply new settings to the running agent. The loop takes all but the first, between two
// cycles.
type steps struct {
	reconfigure func(ctx context.Context, change func(context.Context) error) error
	pick        func(ctx context.Context, want scheduler.Spec) (scheduler.Spec, error)
	exclude     func(ctx context.Context, cidrs []netip.Prefix) error
	retune      func(ctx context.Context, from, to config.Config) map[string]error
}

func (d *daemon) steps() steps {
	return steps{
		reconfigure: d.loop.Reconfigure,
		pick: func(ctx context.Context, want scheduler.Spec) (scheduler.Spec, error) {
			if d.mode.ipvs == nil {
				return want, nil // without effect in iptables mode
			}
			return d.kernel.picker(d.log).pick(ctx, want)
		},
		exclude: func(ctx context.Context, cidrs []netip.Prefix) error { return d.mode.exclude(ctx, cidrs) },
		retune: func(ctx context.Context, from, to config.Config) map[string]error {
			if d.mode.ipvs == nil {
				return nil
			}
			return d.kernel.retune(ctx, from, to)
		},
	}
}

// run watches the file until ctx ends.
func (r *reloader) run(ctx context.Context) error {
	r.publish(r.live.now())
	return r.loader.Watch(ctx, r.log, func() {
		outcome, err := r.reload(ctx)
		if ctx.Err() != nil {
			return
		}
		r.metrics.Reloaded(outcome)
		if err != nil {
			r.log.Warn("new settings are rejected, the previous ones stay in use", zap.Error(err))
			r.events.Node(events.InvalidConfiguration, "new settings are rejected, the previous ones stay in use: "+printable.OneLine(err))
		}
	})
}

// publish has the metrics show the settings in force.
func (r *reloader) publish(c config.Config) {
	if text, err := c.Configz(); err == nil { // /configz reports the error
		r.metrics.Settings(text, time.Now())
	}
}

func (r *reloader) reload(ctx context.Context) (telemetry.Reload, error) {
	loaded, err := r.loader.Load(r.host)
	if err != nil {
		return telemetry.Refused, err
	}
	logSettings(r.log, loaded)
	now, later := config.Compare(r.asked, loaded.Config)
	if len(now) > 0 {
		refused, err := r.adopt(ctx, loaded.Config)
		if err != nil {
			r.loader.Forget() // the file has no mistake
			return telemetry.Refused, err
		}
		now, later = r.withhold(now, later, refused)
		r.publish(r.asked)
	}
	if r.live.now().Mode == config.ModeIPTables {
		now = r.withoutIPVS(now)
	}
	if len(now) > 0 {
		r.log.Info("settings changed", zap.Strings("settings", now))
		r.events.Node(events.ConfigurationReloaded, "new settings are in use: "+strings.Join(now, ", "))
	}
	if len(later) == 0 {
		return telemetry.Applied, nil
	}
	r.log.Warn("changed settings are not in use until a restart", zap.Strings("settings", later))
	r.events.Node(events.RestartNeeded, "changed settings are not in use until a restart: "+strings.Join(later, ", "))
	return telemetry.RestartNeeded, nil
}

// withoutIPVS returns the names without the settings that only ipvs mode has, and logs those.
func (r *reloader) withoutIPVS(names []string) []string {
	idle := slices.DeleteFunc(slices.Clone(names), func(n string) bool { return !strings.HasPrefix(n, "ipvs") })
	if len(idle) > 0 {
		r.log.Info("changed settings are for ipvs mode, and have no effect in iptables mode", zap.Strings("settings", idle))
	}
	return slices.DeleteFunc(names, func(n string) bool { return strings.HasPrefix(n, "ipvs") })
}

// withhold moves the settings that the node refused from one list to the other: after a restart an
// init container or an operator with more rights may have set them.
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

// adopt gives the loop new settings and returns those that the node refused. If a step fails,
// nothing changes.
func (r *reloader) adopt(ctx context.Context, given config.Config) (refused map[string]error, err error) {
	r.adoptAlone(given)
	next := config.Live(r.asked, given)
	asked := next
	err = r.steps.reconfigure(ctx, func(ctx context.Context) (err error) {
		before := r.live.now()
		if next.Scheduler == r.asked.Scheduler {
			next.Scheduler = before.Scheduler // the one that was found to work for it
		} else if next.Scheduler, err = r.steps.pick(ctx, next.Scheduler); err != nil {
			return fmt.Errorf("scheduler %s: %w", asked.Scheduler, err)
		}
		if !slices.Equal(before.ExcludeCIDRs, next.ExcludeCIDRs) { // this reads all servers
			if err := r.steps.exclude(ctx, next.ExcludeCIDRs); err != nil {
				return fmt.Errorf("exclude ranges: %w", err)
			}
		}
		refused = r.steps.retune(ctx, before, next)
		picked := next.Scheduler
		next = config.Live(r.asked, given, slices.Collect(maps.Keys(refused))...)
		asked, next.Scheduler, next.Mode, next.ServiceCIDRs = next, picked, before.Mode, before.ServiceCIDRs
		r.live.set(next)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if next.Scheduler != asked.Scheduler && r.asked.Scheduler != asked.Scheduler {
		r.events.Node(events.SchedulerUnavailable, fmt.Sprintf("the kernel lacks scheduler %s, using %s", asked.Scheduler, next.Scheduler))
	}
	reportKept(r.log, r.asked.Timeouts, asked.Timeouts)
	r.asked = asked
	return refused, nil
}

// adoptAlone applies the settings that do not need the loop, also while the loop is stuck.
func (r *reloader) adoptAlone(given config.Config) {
	_ = setLevel(r.level, given) // the loader checked it
	r.live.change(func(c *config.Config) {
		c.ReadyzWatchBound, c.HealthzWatchBound = given.ReadyzWatchBound, given.HealthzWatchBound
	})
}
