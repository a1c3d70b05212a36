package main

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/kube-ipvs/kube-ipvs/internal/agent"
	"github.com/kube-ipvs/kube-ipvs/internal/catalog"
	"github.com/kube-ipvs/kube-ipvs/internal/config"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs"
	"github.com/kube-ipvs/kube-ipvs/internal/inspect"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/link"
	"github.com/kube-ipvs/kube-ipvs/internal/telemetry"
)

// run is the agent: it returns when ctx ends, and leaves the kernel as it is.
func run(ctx context.Context, _ *config.Loader, loaded config.Loaded) error {
	c := loaded.Config
	log, err := newLogger(c)
	if err != nil {
		return err
	}
	tell(log, loaded)
	follow, err := openSources(log, c)
	if err != nil {
		return err
	}
	defer func() { _ = log.Sync() }() // standard error cannot be synced everywhere
	lock, err := lockRunDir(c.RunDir)
	if err != nil {
		return fmt.Errorf("cannot start: %w", err)
	}
	defer lock.Close() // last of all: the socket is gone while the loop still writes
	socket, err := inspect.Listen(c.Socket())
	if err != nil {
		return err
	}
	defer socket.Close()
	k, err := openKernel(ctx, log, c)
	if err != nil {
		return fmt.Errorf("ipvs mode cannot run on this node: %w", err)
	}
	defer func() { _ = k.close(nil) }()
	if c.Scheduler, err = k.picker(log).pick(ctx, c.Scheduler); err != nil {
		return fmt.Errorf("ipvs mode cannot run on this node: %w", err)
	}
	log.Info("starting", zap.String("mode", ipvs.Name), zap.String("version", buildVersion()), zap.String("node", c.NodeName),
		zap.Stringer("scheduler", c.Scheduler), zap.String("iptables", string(k.rules.Backend())), zap.Any("sources", follow.origins))

	if c.DetectLocal.Mode == "ClusterCIDR" && len(c.DetectLocal.ClusterCIDRs) == 0 && !c.MasqueradeAll {
		log.Warn("no --cluster-cidr: pods cannot be told from others, so only traffic of this host is masqueraded to cluster IPs")
	}
	metrics := telemetry.New()
	metrics.Mode(ipvs.Name, ipvs.Name)
	served := families(k.rules)
	mode := k.newMode(log, c, served)
	known := catalog.New(log, c.NodeName, follow.origins...)
	var loop *agent.Agent
	health := newHealthPorts(log, c, func() bool { return loop.Healthy() })
	metrics.HealthPorts(health.count)
	loop = agent.New(agent.Options{
		Log: log, Catalog: known, Mode: mode, NodeName: c.NodeName, Observer: metrics,
		Compiler: compilerFor(c, served), Concerns: concernsFor(c, served),
		Host: k.link, NodePorts: nodePortsFor(c), Health: health, AuditPeriod: c.SyncPeriod,
	})

	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return loop.Run(ctx) })
	for _, s := range follow.list {
		group.Go(func() error { return s.Run(ctx, known) })
	}
	group.Go(func() error { return health.Run(ctx) })
	group.Go(func() error { return watchLink(ctx, log, k.link, loop, mode) })
	group.Go(func() error { return inspect.Serve(ctx, socket, handler(loop, metrics)) })
	err = group.Wait()
	log.Info("stopped; the kernel goes on carrying what was written", zap.Error(err))
	return err
}

func handler(loop *agent.Agent, metrics *telemetry.Metrics) http.Handler {
	return inspect.Handler(loop, metrics.Handler())
}

// watchAgain is how long a broken watch rests; the audit covers the time.
const watchAgain = time.Second

// watchLink has the loop repair the device and its addresses as soon as somebody
// else takes them away, until ctx ends.
func watchLink(ctx context.Context, log *zap.Logger, l *link.Handle, loop *agent.Agent, mode *ipvs.Mode) error {
	for ctx.Err() == nil {
		err := l.Watch(ctx, func(e link.Event) {
			repairLink(ctx, log, loop, mode, e)
			rereadHost(loop, e)
		})
		if err != nil && ctx.Err() == nil {
			log.Warn("watch of our link broke, beginning again", zap.Error(err))
		}
		select {
		case <-ctx.Done():
		case <-time.After(watchAgain):
		}
	}
	return nil
}

func repairLink(ctx context.Context, log *zap.Logger, loop *agent.Agent, mode *ipvs.Mode, e link.Event) {
	var repair func(context.Context) error
	switch e.Kind {
	case link.OurAddressLost:
		repair = func(context.Context) error { mode.AddressLost(e.Addr); return nil }
	case link.OurLinkLost:
		repair = mode.LinkLost
	case link.Ready, link.Overrun:
		repair = mode.ReloadAddresses
	default:
		return // addresses of other links are not repaired
	}
	if e.Kind != link.Ready {
		log.Debug("somebody else changed our link", zap.Stringer("event", e))
	}
	if err := loop.Repair(ctx, repair); err != nil && ctx.Err() == nil {
		log.Warn("repair of our link failed, the audit will try again", zap.Error(err))
	}
}

// rereadHost has the loop look at the node's own addresses when they changed, or
// may have.
func rereadHost(loop *agent.Agent, e link.Event) {
	switch e.Kind {
	case link.NodeAddressesChanged, link.Ready, link.Overrun:
		loop.HostChanged()
	}
}
