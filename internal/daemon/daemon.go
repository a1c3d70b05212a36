package daemon

import (
	"context"
	"net"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/kube-ipvs/kube-ipvs/internal/agent"
	"github.com/kube-ipvs/kube-ipvs/internal/apiprobe"
	"github.com/kube-ipvs/kube-ipvs/internal/catalog"
	"github.com/kube-ipvs/kube-ipvs/internal/config"
	"github.com/kube-ipvs/kube-ipvs/internal/events"
	"github.com/kube-ipvs/kube-ipvs/internal/healthcheck"
	"github.com/kube-ipvs/kube-ipvs/internal/inspect"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/conntrack"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/relay"
	"github.com/kube-ipvs/kube-ipvs/internal/rulewatch"
	"github.com/kube-ipvs/kube-ipvs/internal/sdnotify"
	"github.com/kube-ipvs/kube-ipvs/internal/telemetry"
	"github.com/kube-ipvs/kube-ipvs/internal/wiring"
)

// daemon is the running agent: the loop, and all tasks beside it.
type daemon struct {
	log         *zap.Logger
	started     time.Time
	live        *liveConfig
	kernel      *kernel
	sources     sources
	served      []model.Family
	chosen      modeDecision
	mode        *activeMode
	sweeper     *conntrack.Sweeper // nil where the kernel does not let this process list flows
	known       *catalog.Catalog
	loop        *agent.Agent
	healthPorts healthPorts
	relay       *relay.Relay
	prober      *apiprobe.Prober
	events      *events.Recorder // nil without an API server
	metrics     *telemetry.Metrics
	reload      *reloader
	logs        *logging
	firewalls   *rulewatch.FirewallWatcher
	filled      chan struct{} // closed when everything was written once
}

// periods returns the periods of the configured mode.
func periods(c config.Config) agent.Periods {
	audit, least := c.Periods(c.Mode)
	return agent.Periods{AuditPeriod: audit, MinPeriod: least}
}

func newDaemon(ctx context.Context, log *zap.Logger, c config.Config, k *kernel, chosen modeDecision, from sources, metrics *telemetry.Metrics) *daemon {
	d := &daemon{
		log: log, started: time.Now(), live: newLiveConfig(c), kernel: k, chosen: chosen, sources: from, served: k.families(),
		known: from.known, metrics: metrics, filled: make(chan struct{}),
	}
	if from.client != nil {
		d.events = events.New(events.Options{Node: c.NodeName, API: from.client, Log: log})
	}
	report := eventReporter{d.events}
	k.sysctlRefused = report.sysctlRefused
	if k.flows != nil {
		d.sweeper = conntrack.NewSweeper(log, k.flows, conntrack.SweeperOptions{Observed: func(family uint8, took time.Duration, o conntrack.Outcome, err error) {
			metrics.Swept(model.Family(family), took, o.Deleted, err)
		}})
	}
	d.mode = d.newActiveMode(ctx, d.live.now)
	d.healthPorts = newHealthPorts(log, d.live.now, healthcheck.Options{Healthy: func() bool { return d.loop.Healthy() }, Failed: report.healthPortFailed})
	d.relay = relay.New(log, relay.Options{})
	d.prober = newProber(d)
	d.loop = agent.New(agent.Options{
		Log: log, Catalog: d.known, Mode: d.mode.Inspectable, NodeName: c.NodeName,
		Receivers: agent.Receivers{
			Observer: externalIPs{d.metrics, warnExternalIPs(log, d.live.now)}, Events: report,
			Health: d.healthPorts, Relay: d.relay, Ready: func() { close(d.filled) },
		},
		Compiler: wiring.CompilerFor(d.live.now, d.served), Affects: wiring.AffectsFor(d.live.now, d.served),
		Host: k.link, NodePorts: wiring.NodePortsFor(d.live.now), Probes: agent.Probes{Scheduler: d.tryScheduler, GUE: d.tryGUE}, LocalPod: wiring.PodMatcher(d.live.now), Periods: periods(c),
		Prober:     d.prober,
		APIServers: d.sources.reached.Addrs, PodRanges: c.DetectLocal.ClusterCIDRs, DNSServices: c.DNSServices, About: d.about, Unreadable: d.sources.unreadable, Remember: wiring.NewNodeClaims(log, c.RunDir).Keep,
	})
	d.sources.reached.Tell(d.loop.HostChanged)
	d.sources.reached.Refused(d.refused)
	d.firewalls = d.newFirewallWatcher()
	d.connectMetrics()
	return d
}

// run returns when ctx ends or a task fails. asked ends when the process is asked to stop, ctx at that time or
// later.
func (d *daemon) run(ctx, asked context.Context, socket net.Listener) error {
	defer profileWaits(d.live.now().Profiling)()
	group, ctx := errgroup.WithContext(ctx)
	for _, t := range d.tasks(asked, socket) {
		group.Go(func() error { return t.Run(ctx) })
	}
	d.events.Node(events.Starting, "")
	d.chosen.report(d.log, d.events)
	d.kernel.ruleStore.report(d.log, d.events)
	return group.Wait()
}

// tasks returns all parts of the daemon that run until it ends.
func (d *daemon) tasks(asked context.Context, socket net.Listener) []task {
	c := d.live.now()
	all := []task{
		{"loop", d.loop.Run},
		{"notifier", func(ctx context.Context) error {
			ctx, end := context.WithCancel(ctx)
			defer end()
			defer context.AfterFunc(asked, end)() // the supervisor learns of a stop before anything is withdrawn
			return newNotifier(d.log).Run(ctx, func() sdnotify.State { return supervision(d.health().report) })
		}},
		{"sources", d.sources.wait},
		{"health-check ports", d.healthPorts.Run},
		{"NodePorts on loopback", d.relay.Run},
		{"probes of API servers", d.prober.Run},
		{"link watch", func(ctx context.Context) error { return watchLink(ctx, d.log, d.kernel.link, d.loop, d.mode) }},
		{"announcements", d.announceNode},
		{"rule watch", d.watchRules},
		{"firewall watch", d.watchFirewalls},
		{"removal of ipvs mode", d.leaveIPVS},
		{"stray rules", d.clearStrayRules},
		{"removal of other rules", d.leaveOtherRules},
		{"wait for IPVS", d.awaitIPVS},
		{"inspection socket", func(ctx context.Context) error {
			return inspect.Serve(ctx, socket, inspect.Handler(d.loop, d.metrics.Handler(), d.health().rows))
		}},
		{"health log", func(ctx context.Context) error { return d.health().logChanges(ctx, d.log) }},
		{"dropped log lines", d.logs.reportDropped},
		{"events", d.events.Run},
		{"reload", d.reload.run},
		{"health listener", func(ctx context.Context) error {
			return d.listen(ctx, "health", c.Healthz, d.healthHandler(), events.FailedToStartProxierHealthcheck)
		}},
		{"metrics listener", func(ctx context.Context) error {
			return d.listen(ctx, "metrics", c.Metrics, d.metricsHandler(c), events.FailedToStartMetricServer)
		}},
	}
	if d.sweeper != nil {
		all = append(all, task{"sweeper", d.sweeper.Run})
	}
	return all
}

// afterStart blocks until everything was written once, for at most the given time. It returns
// false when ctx ended.
func (d *daemon) afterStart(ctx context.Context, most time.Duration) bool {
	select {
	case <-d.filled:
	case <-time.After(most):
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}
