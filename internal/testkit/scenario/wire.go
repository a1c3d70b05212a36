package scenario

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kube-ipvs/kube-ipvs/internal/agent"
	"github.com/kube-ipvs/kube-ipvs/internal/catalog"
	"github.com/kube-ipvs/kube-ipvs/internal/config"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/announce"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/iptables"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/migrate"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/link"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/source/file"
	"github.com/kube-ipvs/kube-ipvs/internal/telemetry"
	"github.com/kube-ipvs/kube-ipvs/internal/wiring"
)

// This file connects the packages as internal/daemon does, with fakes in place of the
// kernel. Settings become options as in the program (internal/wiring). The scenarios on a real kernel run the program itself, so a difference between
// the two shows.

// NodeName is the node that all agents of scenarios run as.
const NodeName = "node-a"

// The paces of the in-process agent. It waits as long as the real one only where
// waiting is what a scenario is about.
const (
	quickCoalesce = time.Millisecond
	quickPatience = 3 * time.Millisecond
	quickRetry    = time.Millisecond
	slowestRetry  = 20 * time.Millisecond
	quickAudit    = 10 * time.Millisecond
	quickSweep    = 5 * time.Millisecond
)

var quickFiles = file.Options{Poll: 250 * time.Millisecond, Quiet: 2 * time.Millisecond, Patience: 50 * time.Millisecond}

// settings reads the flags that scenarios use.
func settings(manifests string, s Start) (config.Config, error) {
	c := config.Defaults()
	c.Own.SourceDir = manifests
	c.Own.Drain = &metav1.Duration{} // no drain: removed rows are gone at once, unless the scenario sets one
	f := pflag.NewFlagSet("kube-ipvs", pflag.ContinueOnError)
	config.Bind(f, &c)
	if err := f.Parse(s.Flags); err != nil {
		return config.Config{}, fmt.Errorf("flags of the agent: %w", err)
	}
	return c.Check(NodeName)
}

func families() []model.Family {
	f := model.Families()
	return f[:]
}

func modeConfig(c config.Config) ipvs.Config { return wiring.IPVSConfig(c, families(), nil) }

// rulesConfig is the configuration of iptables mode; liberal tells how connection tracking is.
func rulesConfig(c config.Config, liberal bool) iptables.Config {
	out := wiring.IPTablesConfig(c, families(), nil)
	out.DropInvalid = !liberal
	return out
}

// process is an agent in this process.
type process struct {
	loop *agent.Agent
	mode dataplane.Inspectable // of the loop goroutine
	ctx  context.Context       // ends with the agent
	end  context.CancelFunc
	done chan error
}

func startProcess(log *zap.Logger, c config.Config, s Start, in inputs, k *kernel, t *faultProxy, m *telemetry.Metrics) *process {
	mode, bound := newMode(log, c, k, t)
	known := catalog.New(log, c.NodeName, model.FromFile)
	known.SetEndpointGrace(quickPatience)
	known.Remember(k.remembered())
	audit := time.Duration(-1)
	if s.Audit {
		audit = quickAudit
	}
	now := wiring.Static(c)
	loop := agent.New(agent.Options{
		Log: log, Catalog: known, Mode: mode, NodeName: c.NodeName, Receivers: agent.Receivers{Observer: m},
		Compiler: wiring.CompilerFor(now, families()), Affects: wiring.AffectsFor(now, families()),
		Host: tappedHost{k.links, t}, NodePorts: wiring.NodePortsFor(now),
		PodRanges: c.DetectLocal.ClusterCIDRs, Remember: k.remember,
		Periods: agent.Periods{Coalesce: quickCoalesce, AuditPeriod: audit, RetryMin: quickRetry, RetryMax: slowestRetry},
	})
	m.Loop(loop.Condition)
	t.tellTo(m.KernelCall)
	ctx, cancel := context.WithCancel(context.Background())
	p := &process{loop: loop, mode: mode, ctx: ctx, end: cancel, done: make(chan error, 1)}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return loop.Run(ctx) })
	group.Go(func() error { return in.source(log, c.SourceDir).Run(ctx, known) })
	group.Go(func() error { return watch(ctx, log, k, loop, bound) })
	group.Go(func() error {
		_ = loop.SetFailing(ctx, k.probed()) // fails only when the agent ends
		return nil
	})
	if rulesMode, is := mode.(*iptables.Mode); is {
		group.Go(func() error {
			leaveIPVS(ctx, log, loop, rulesMode, ipvs.New(log, modeConfig(c), k.deps(t)), k)
			return nil
		})
	}
	go func() { p.done <- group.Wait() }()
	return p
}

// stop ends the agent and waits until it is gone.
func (p *process) stop() error {
	p.end()
	return <-p.done
}

// newMode makes the mode that the settings name; bound is nil if it binds no address.
func newMode(log *zap.Logger, c config.Config, k *kernel, t *faultProxy) (mode dataplane.Inspectable, bound *ipvs.Mode) {
	if c.Mode == config.ModeIPTables {
		deps := k.rulesDeps(t)
		deps.Announced = k.announced(c, t)
		return serving(iptables.New(log, rulesConfig(c, k.liberal.Load()), deps)), nil
	}
	deps := k.deps(t)
	deps.Announced = k.announced(c, t)
	bound = ipvs.New(log, modeConfig(c), deps)
	return serving(bound), bound
}

// announced has the routes that announce addresses, if the settings ask for them: the calls of all other
// scenarios are counted without them.
func (k *kernel) announced(c config.Config, t *faultProxy) announce.Kernel {
	if c.AnnounceTable == 0 {
		return nil
	}
	return tappedAnnounced{k.links, t}
}

// serving returns a mode as that of a node that load balancers may use from the start on.
func serving[M interface {
	dataplane.Inspectable
	Announced() *announce.Manager
}](mode M) dataplane.Inspectable {
	mode.Announced().SetNode(announce.Node{Serves: true})
	return mode
}

// watch has the loop repair what is lost of the link, if the mode has one.
func watch(ctx context.Context, log *zap.Logger, k *kernel, loop *agent.Agent, mode *ipvs.Mode) error {
	return k.links.Watch(ctx, func(e link.Event) {
		switch e.Kind {
		case link.NodeAddressesChanged, link.DefaultRoutesChanged, link.Ready, link.Overrun:
			loop.HostChanged()
		}
		if mode == nil {
			return
		}
		repair := map[link.Kind]func(context.Context) error{
			link.OurAddressLost: func(context.Context) error { mode.AddressLost(e.Addr); return nil },
			link.OurRouteLost:   func(context.Context) error { mode.RouteLost(e.Route); return nil },
			link.OurLinkLost:    mode.LinkLost,

			link.OurAnnouncementLost: func(context.Context) error { mode.Announced().Lost(e.Announced); return nil },
			link.Overrun:             mode.ReloadAddresses,
		}[e.Kind]
		if repair != nil {
			log.Info("another program changed kube-ipvs0, repairing it", zap.Stringer("event", e))
			_ = loop.Repair(ctx, repair) // the audit finds failures
		}
	})
}

// leaveIPVS takes away what ipvs mode has left, once iptables mode carries Services. The
// loop does it, as in the program; failures are retried.
func leaveIPVS(ctx context.Context, log *zap.Logger, loop *agent.Agent, mode *iptables.Mode, left *ipvs.Mode, k *kernel) {
	sweep := func(ctx context.Context) error {
		host, err := k.host()
		if err != nil {
			return err
		}
		left.SetHost(host)
		if err := dataplane.Sweep(ctx, left.HandOver(migrate.TargetOurs), func(dataplane.Result) {}); err != nil {
			return err
		}
		mode.Rebase()
		return nil
	}
	served := func() bool {
		s, err := loop.Status(ctx)
		return err == nil && s.Ready && s.Complete // rows that are not known may be carried by IPVS alone
	}
	for tick := time.NewTicker(quickSweep); ; {
		select {
		case <-ctx.Done():
			tick.Stop()
			return
		case <-tick.C:
		}
		if !served() {
			continue
		}
		if !k.holdsIPVS() {
			tick.Stop()
			return
		}
		if err := loop.Sweep(ctx, sweep); err != nil {
			log.Warn("removing remains of ipvs mode failed, will be tried again", zap.Error(err))
		}
	}
}

// planned prints what the inputs ask for on a host with the given links and
// gateways, from nothing: the oracle.
// remembered is what the agent before has kept for the next one.
func planned(c config.Config, in inputs, host model.Host, remembered map[netip.Addr]string) (map[string]string, error) {
	known := catalog.New(zap.NewNop(), c.NodeName, model.FromFile)
	known.Remember(remembered)
	if err := in.deliver(known, c.SourceDir); err != nil {
		return nil, err
	}
	return wanted(c, host, known.Take())
}

// wanted prints what follows from a catalog that holds everything.
func wanted(c config.Config, host model.Host, batch catalog.Batch) (map[string]string, error) {
	mode, kinds := modeWithoutKernel(c)
	links, gateways, failing := host.Links, host.Gateways, host.Failing
	host = batch.Host()
	host.Links, host.Gateways, host.PodRanges = links, gateways, c.DetectLocal.ClusterCIDRs
	host.Failing = failing
	host.NodePorts = wiring.NodePortsFor(wiring.Static(c))(host)
	mode.SetHost(host)
	compiler := wiring.CompilerFor(wiring.Static(c), families())(host)
	for _, in := range batch.Services {
		mode.Set(compiler.Compile(in.ID, in.Service, in.Slices))
	}
	return rowsOf(mode, kinds)
}

// rowsOf prints what a mode wants, by kind.
func rowsOf(mode dataplane.Inspectable, kinds []string) (map[string]string, error) {
	out := map[string]string{}
	for _, kind := range kinds {
		var b strings.Builder
		if err := mode.WriteRows(&b, kind); err != nil {
			return nil, err
		}
		out[kind] = b.String()
	}
	return out, nil
}

// KindsOf are the kinds of rows that a mode has, by its name.
func KindsOf(mode string) []string {
	if mode == string(config.ModeIPTables) {
		return iptables.Kinds()
	}
	return Kinds()
}

// modeWithoutKernel is the mode that the settings name, and the kinds of rows it has. It assumes
// that connection tracking is not liberal, the default.
func modeWithoutKernel(c config.Config) (mode dataplane.Inspectable, kinds []string) {
	if c.Mode == config.ModeIPTables {
		return serving(iptables.New(zap.NewNop(), rulesConfig(c, false), iptables.Deps{})), KindsOf(string(c.Mode))
	}
	return serving(ipvs.New(zap.NewNop(), modeConfig(c), ipvs.Deps{})), KindsOf(string(c.Mode))
}

// cleanUp sweeps the fakes as the program sweeps the kernel, in ipvs mode whatever mode
// ran: that knows the rules of both.
func cleanUp(ctx context.Context, c config.Config, deps ipvs.Deps) error {
	return dataplane.Sweep(ctx, ipvs.New(zap.NewNop(), modeConfig(c), deps), func(dataplane.Result) {})
}
