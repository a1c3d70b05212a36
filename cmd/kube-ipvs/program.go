package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"runtime"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/spf13/pflag"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/kube-ipvs/kube-ipvs/internal/agent"
	"github.com/kube-ipvs/kube-ipvs/internal/catalog"
	"github.com/kube-ipvs/kube-ipvs/internal/config"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs"
	"github.com/kube-ipvs/kube-ipvs/internal/events"
	"github.com/kube-ipvs/kube-ipvs/internal/healthcheck"
	"github.com/kube-ipvs/kube-ipvs/internal/httpd"
	"github.com/kube-ipvs/kube-ipvs/internal/inspect"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/conntrack"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/rulewatch"
	"github.com/kube-ipvs/kube-ipvs/internal/sdnotify"
	"github.com/kube-ipvs/kube-ipvs/internal/telemetry"
)

// behavesAs is the release whose kube-proxy this program behaves as.
const behavesAs = "v1.36.3"

// program is the running agent, its rooms joined.
type program struct {
	log       *zap.Logger
	started   time.Time
	live      *live
	kernel    *kernel
	follow    sources
	served    []model.Family
	chosen    choice
	carrier   *carrier
	sweeper   *conntrack.Sweeper // nil where the kernel lets nobody look at flows
	known     *catalog.Catalog
	loop      *agent.Agent
	health    healthPorts
	events    *events.Recorder
	metrics   *telemetry.Metrics
	reload    *reloader
	logs      *logging
	firewalls *rulewatch.FirewallWatcher
	// unlocking: an address of the API server is looked at, see refused.
	unlocking atomic.Bool
	filled    chan struct{} // closed when everything was written once
}

// periods are those that the configuration has for its mode.
func periods(c config.Config) agent.Periods {
	audit, least := c.Periods(c.Mode)
	return agent.Periods{AuditPeriod: audit, MinPeriod: least}
}

// slicePatience is how long a new Service waits for its first EndpointSlice before it is
// written as one without endpoints. An API server that is busy takes tens of
// milliseconds from one to the other.
const slicePatience = 100 * time.Millisecond

func newProgram(ctx context.Context, log *zap.Logger, c config.Config, k *kernel, chosen choice, follow sources, metrics *telemetry.Metrics) *program {
	p := &program{
		log: log, started: time.Now(), live: newLive(c), kernel: k, chosen: chosen, follow: follow, served: families(k.rules),
		known: follow.known, metrics: metrics, filled: make(chan struct{}),
	}
	if follow.client != nil {
		p.events = events.New(events.Options{Node: c.NodeName, API: follow.client, Log: log})
	}
	tell := herald{p.events}
	k.sysctlRefused = tell.noSysctl
	if k.flows != nil {
		p.sweeper = conntrack.NewSweeper(log, k.flows, conntrack.SweeperOptions{Observed: p.swept})
	}
	p.carrier = p.newCarrier(ctx, p.live.now)
	p.health = newHealthPorts(log, p.live.now, healthcheck.Options{Healthy: func() bool { return p.loop.Healthy() }, Failed: tell.noHealthPort})
	p.loop = agent.New(agent.Options{
		Log: log, Catalog: p.known, Mode: p.carrier.Inspectable, NodeName: c.NodeName, Observer: externalIPs{p.metrics, warnExternalIPs(log, p.live.now)}, Events: tell,
		Compiler: compilerFor(p.live.now, p.served), Concerns: concernsFor(p.live.now, p.served),
		Host: k.link, NodePorts: nodePortsFor(p.live.now), Health: p.health, Probes: agent.Probes{Scheduler: p.tryScheduler, GUE: p.tryGUE}, LocalPod: localPodFor(p.live.now), Periods: periods(c),
		Ready:      func() { close(p.filled) },
		APIServers: p.follow.reached.Addrs, PodRanges: c.DetectLocal.ClusterCIDRs, DNSServices: c.DNSServices, Unreadable: p.follow.unreadable, Remember: newNodeClaims(log, c.RunDir).keep,
	})
	p.follow.reached.Tell(p.loop.HostChanged)
	p.follow.reached.Refused(p.refused)
	p.firewalls = p.newFirewallWatcher()
	p.measure()
	return p
}

// externalIPs is an observer of the loop that passes on how many Services have external IPs.
type externalIPs struct {
	agent.Observer
	tell func(int)
}

// Counts implements agent.Observer.
func (o externalIPs) Counts(c agent.Counts) {
	o.Observer.Counts(c)
	o.tell(c.External)
}

// sayPicked tells by an Event when the kernel lacks what was asked for.
func (p *program) sayPicked(asked config.Config) {
	if now := p.live.now(); now.Mode == config.ModeIPVS && now.Scheduler != asked.Scheduler {
		p.events.Node(events.SchedulerUnavailable, fmt.Sprintf("the kernel lacks scheduler %s, using %s", asked.Scheduler, now.Scheduler))
	}
}

// run returns when ctx ends or a part of it cannot go on.
func (p *program) run(ctx context.Context, socket net.Listener) error {
	c := p.live.now()
	defer profileWaits(c.Profiling)()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return p.loop.Run(ctx) })
	group.Go(func() error {
		return newNotifier(p.log).Run(ctx, func() sdnotify.State { return supervision(p.observed().report) })
	})
	group.Go(func() error { return p.follow.wait(ctx) })
	group.Go(func() error { return p.health.Run(ctx) })
	if p.sweeper != nil {
		group.Go(func() error { return p.sweeper.Run(ctx) })
	}
	group.Go(func() error { return watchLink(ctx, p.log, p.kernel.link, p.loop, p.ipvsMode) })
	group.Go(func() error { return p.watchRules(ctx) })
	group.Go(func() error { return p.watchFirewalls(ctx) })
	group.Go(func() error { return p.leaveIPVS(ctx) })
	group.Go(func() error { return p.clearStrayRules(ctx) })
	group.Go(func() error { return p.awaitIPVS(ctx) })
	group.Go(func() error {
		return inspect.Serve(ctx, socket, inspect.Handler(p.loop, p.metrics.Handler(), p.observed().rows))
	})
	group.Go(func() error { return p.observed().say(ctx, p.log) })
	group.Go(func() error { return p.logs.sayDropped(ctx) })
	group.Go(func() error { return p.events.Run(ctx) })
	group.Go(func() error { return p.reload.run(ctx) })
	group.Go(func() error {
		return p.listen(ctx, "health", c.Healthz, p.healthHandler(), events.FailedToStartProxierHealthcheck)
	})
	group.Go(func() error {
		return p.listen(ctx, "metrics", c.Metrics, p.metricsHandler(c), events.FailedToStartMetricServer)
	})
	p.events.Node(events.Starting, "")
	p.chosen.say(p.log, p.events)
	return group.Wait()
}

// afterStart waits until everything was written once, or for so long. It is false when ctx
// ends before.
func (p *program) afterStart(ctx context.Context, most time.Duration) bool {
	select {
	case <-p.filled:
	case <-time.After(most):
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// ipvsMode is the mode that runs if that is IPVS, else nil.
func (p *program) ipvsMode() *ipvs.Mode { return p.carrier.ipvs }

func (p *program) listen(ctx context.Context, name, address string, h http.Handler, failed events.Kind) error {
	return httpd.Serve(ctx, p.log, httpd.Listener{
		Name: name, Address: address, Handler: h, HardFail: p.live.now().BindHardFail,
		Failed: func(err error) { p.lastWords(failed, err) },
	})
}

// lastWordsWithin bounds what is left to say when the process is about to end.
const lastWordsWithin = time.Second

func (p *program) lastWords(kind events.Kind, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), lastWordsWithin)
	defer cancel()
	p.events.LastNode(ctx, kind, err.Error())
}

// measure joins the metrics to what is counted elsewhere.
func (p *program) measure() {
	m := p.metrics
	m.Mode(string(p.chosen.asked), string(p.chosen.active))
	m.Families(p.served)
	m.Build(buildVersion(), behavesAs)
	m.Inputs(p.known.Changes)
	m.Loop(p.loop.Condition)
	m.Checks(p.observed().holds)
	m.ExternalIPs(func() bool { return limitsExternalIPs(p.live.now()) })
	m.HealthPorts(p.health.count)
	m.Firewalls(p.firewalls.Blocks)
	m.Events(p.events.Dropped)
	m.RestoreFailures(func(f model.Family) uint64 { return p.kernel.rules.RestoreFailures(rules.Family(f)) })
	m.IdleTimes(p.kernel.idleTimes)
	m.Sources(p.synced)
	m.Unreadable(p.follow.unreadableCount)
	p.kernel.calls.tell(m.KernelCall)
	m.Sets(p.newSetReader().fill)
	m.Drops(p.newDropReader().read)
	m.Features(func() []telemetry.Feature {
		return []telemetry.Feature{{Name: "AllowServiceExternalIPs", Enabled: p.live.now().AllowExternalIPs}}
	})
	if p.follow.kube != nil {
		m.Watches(p.watches)
	}
	if most := p.live.now().ServiceMetrics; most > 0 {
		m.Services(p.serviceSources(most))
	}
}

// synced tells of each source whether it has delivered all it can.
func (p *program) synced() map[string]bool {
	out, unsynced := map[string]bool{}, p.known.Unsynced()
	for _, o := range p.follow.origins {
		_, not := unsynced[o]
		out[string(o)] = !not
	}
	return out
}

func (p *program) swept(family uint8, took time.Duration, o conntrack.Outcome, err error) {
	p.metrics.Swept(model.Family(family), took, o.Deleted, err)
}

func (p *program) watches() map[string]telemetry.Watch {
	out := map[string]telemetry.Watch{}
	for kind, w := range p.follow.kube.Progress() {
		out[kind] = telemetry.Watch{Heard: w.Heard, Failing: string(w.Reason)}
	}
	return out
}

func (p *program) healthHandler() http.Handler {
	return httpd.HealthHandler(httpd.HealthOptions{Report: p.observed().report, Count: p.metrics.Probed})
}

func (p *program) observed() observed {
	return observed{settings: p.live.now, families: p.served, loop: p.loop, known: p.known, progress: p.follow.progress(), unreadable: p.follow.unreadable}
}

func (p *program) metricsHandler(c config.Config) http.Handler {
	h := httpd.MetricsHandler(httpd.MetricsOptions{
		Metrics: p.metrics.Handler(), SLIs: p.metrics.SLIs(),
		Mode:    func() string { return string(p.live.now().Mode) },
		Configz: func() ([]byte, error) { return p.live.now().Configz() },
		Flags:   p.flags,
		Status: func() httpd.StatusInfo {
			return httpd.StatusInfo{Version: buildVersion(), Emulation: "1.36", GoVersion: runtime.Version(), Started: p.started, Uptime: time.Since(p.started)}
		},
		Verbosity: p.setVerbosity,
		Profiling: c.Profiling,
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/healthz" {
			p.metrics.Pinged() // as the library of Kubernetes counts it
		}
		h.ServeHTTP(w, r)
	})
}

// flags are what the process was started with, defaults included.
func (p *program) flags() (out [][2]string) {
	p.reload.flags.VisitAll(func(f *pflag.Flag) { out = append(out, [2]string{f.Name, f.Value.String()}) })
	return out
}

// debugFrom is the level of klog from which on everything is logged, as with -v.
const debugFrom = 4

// setVerbosity takes the levels of klog, until the file says something else.
func (p *program) setVerbosity(text string) error {
	v, err := strconv.ParseInt(text, 10, 32)
	if err != nil || v < 0 {
		return fmt.Errorf("%q is not a level such as 2", text)
	}
	p.reload.level.SetLevel(zap.InfoLevel)
	if v >= debugFrom {
		p.reload.level.SetLevel(zap.DebugLevel)
	}
	return nil
}
