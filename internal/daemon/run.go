package daemon

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/pflag"
	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/config"
	"github.com/kube-ipvs/kube-ipvs/internal/inspect"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/memory"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/procfs"
	"github.com/kube-ipvs/kube-ipvs/internal/source/kube"
	"github.com/kube-ipvs/kube-ipvs/internal/telemetry"
	"github.com/kube-ipvs/kube-ipvs/internal/version"
)

// Run runs the agent until ctx ends. It leaves the kernel as it is.
func Run(ctx context.Context, flags *pflag.FlagSet, loader *config.Loader, loaded config.Loaded) error {
	c := loaded.Config
	logs, err := newLogger(c)
	if err != nil {
		return err
	}
	defer logs.sink.Close()
	log := logs.Logger
	logSettings(log, loaded)
	if c.InitOnly {
		return initialize(ctx, log, c)
	}
	return serve(ctx, logs, flags, loader, c)
}

// serve opens everything, runs the daemon, and closes everything.
func serve(ctx context.Context, logs *logging, flags *pflag.FlagSet, loader *config.Loader, c config.Config) error {
	log, asked := logs.Logger, ctx
	var linger lingering
	ctx, end := linger.start(asked)
	defer end()
	boundMemory(log, func() (memory.Limit, error) { return memory.LimitOf(procfs.Files{}) })
	kube.CatchKlog(log)
	metrics := telemetry.New()
	metrics.RESTClient() // before there is a client
	from, err := openSources(log, c)
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
	given := c
	from.start(ctx, log, c) // sources list while the kernel is opened
	defer from.end()
	c = from.withServiceCIDRs(ctx, log, c)
	k, c, chosen, err := openKernel(ctx, log, c)
	if ctx.Err() != nil {
		log.Info("stopped during the start", zap.Error(err))
		return nil // an error that the end of ctx caused is no failure
	}
	if err != nil {
		return err
	}
	defer func() { _ = k.close(nil) }()
	k.prepare(ctx, log, c)
	logStart(log, c, k, chosen, from)
	if err := k.adoptSets(ctx, log); err != nil {
		log.Warn("sets of an agent with another --rules are not adopted: virtual servers of NodePorts that no Service wants may stay", zap.Error(err))
	}
	d := newDaemon(ctx, log, c, k, chosen, from, metrics)
	d.configure(logs, flags, loader, given)
	if c.AnnounceTable != 0 && c.AnnounceLead > 0 {
		linger.until(d.withdraw)
	}
	err = d.run(ctx, asked, socket)
	log.Info("stopped; the kernel keeps forwarding with the rows that were written", zap.Error(err))
	return err
}

// configure connects the log and the settings of the file, which may change while the daemon runs.
func (d *daemon) configure(logs *logging, flags *pflag.FlagSet, loader *config.Loader, given config.Config) {
	d.logs = logs
	d.metrics.LogLines(logs.dropped)
	host, _ := os.Hostname() // the loader failed before where the name matters
	d.reload = &reloader{
		log: d.log, level: logs.level, flags: flags, loader: loader, host: host, live: d.live, asked: given,
		steps: d.steps(), events: d.events, metrics: d.metrics,
	}
	d.reportSchedulerFallback(given)
}

func logStart(log *zap.Logger, c config.Config, k *kernel, chosen modeDecision, from sources) {
	log.Info("starting", zap.String("mode", string(chosen.active)), zap.String("asked", string(chosen.asked)), zap.String("version", version.String()), zap.String("node", c.NodeName),
		zap.Stringer("scheduler", c.Scheduler), zap.String("iptables", string(k.iptablesBackend())), zap.Any("sources", from.origins))
	if c.DetectLocal.Mode == "ClusterCIDR" && len(c.DetectLocal.ClusterCIDRs) == 0 && !c.MasqueradeAll {
		log.Warn("no --cluster-cidr: traffic of pods cannot be recognized, so only traffic of this host to cluster IPs is masqueraded")
	}
}
