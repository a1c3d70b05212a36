package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/pflag"
	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/config"
	"github.com/kube-ipvs/kube-ipvs/internal/inspect"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/tune"
	"github.com/kube-ipvs/kube-ipvs/internal/source/kube"
	"github.com/kube-ipvs/kube-ipvs/internal/telemetry"
)

// run is the agent: it returns when ctx ends, and leaves the kernel as it is.
func run(ctx context.Context, flags *pflag.FlagSet, loader *config.Loader, loaded config.Loaded) error {
	c := loaded.Config
	logs, err := newLogger(c)
	if err != nil {
		return err
	}
	defer logs.sink.Close()
	log := logs.Logger
	tell(log, loaded)
	if c.InitOnly {
		return initialize(ctx, log, c)
	}
	return proxy(ctx, logs, flags, loader, c)
}

// proxy is run without what has to be there first: a log.
func proxy(ctx context.Context, logs *logging, flags *pflag.FlagSet, loader *config.Loader, c config.Config) error {
	log := logs.Logger
	boundMemory(log, tune.New(log, tune.Options{}).MemoryLimit)
	kube.CatchKlog(log)
	metrics := telemetry.New()
	metrics.RESTClient() // before there is a client
	follow, err := openSources(log, c)
	if err != nil {
		return err
	}
	lock, err := lockNode(log, "run", c.RunDir)
	if err != nil {
		return fmt.Errorf("cannot start: %w", err)
	}
	defer lock.Close() // last of all: the socket is gone while the loop still writes
	socket, err := inspect.Listen(c.Socket())
	if err != nil {
		return err
	}
	defer socket.Close()
	asked := c
	follow.start(ctx, log, c) // lists come while the kernel is opened
	defer follow.end()
	k, c, chosen, err := openKernel(ctx, log, c)
	if ctx.Err() != nil {
		log.Info("stopped during the start", zap.Error(err))
		return nil // what the end broke is no failure
	}
	if err != nil {
		return err
	}
	defer func() { _ = k.close(nil) }()
	k.prepare(ctx, log, c)
	sayStart(log, c, k, chosen, follow)
	p := newProgram(ctx, log, c, k, chosen, follow, metrics)
	p.logs = logs
	metrics.LogLines(logs.dropped)
	host, _ := os.Hostname() // it was asked before, where it matters
	p.reload = &reloader{
		log: log, level: logs.level, flags: flags, loader: loader, host: host, live: p.live, asked: asked,
		steps: p.steps(), events: p.events, metrics: p.metrics,
	}
	p.sayPicked(asked)
	err = p.run(ctx, socket)
	log.Info("stopped; the kernel goes on carrying what was written", zap.Error(err))
	return err
}

func sayStart(log *zap.Logger, c config.Config, k *kernel, chosen choice, follow sources) {
	log.Info("starting", zap.String("mode", string(chosen.active)), zap.String("asked", string(chosen.asked)), zap.String("version", buildVersion()), zap.String("node", c.NodeName),
		zap.Stringer("scheduler", c.Scheduler), zap.String("iptables", string(k.rules.Backend())), zap.Any("sources", follow.origins))
	if c.DetectLocal.Mode == "ClusterCIDR" && len(c.DetectLocal.ClusterCIDRs) == 0 && !c.MasqueradeAll {
		log.Warn("no --cluster-cidr: pods cannot be told from others, so only traffic of this host is masqueraded to cluster IPs")
	}
}
