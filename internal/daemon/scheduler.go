package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/config"
	"github.com/kube-ipvs/kube-ipvs/internal/events"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/internal/nodecheck"
	"github.com/kube-ipvs/kube-ipvs/scheduler"
)

// A picker finds a scheduler that the kernel has.
type picker struct {
	log     *zap.Logger
	servers interface {
		vserver.ServerWriter
		ListServers(ctx context.Context) (map[vserver.ServerKey]vserver.Server, error)
	}
	modules fs.FS // /sys/module
	load    func(ctx context.Context, a scheduler.Algorithm) error
	lacking func(module string, err error) error
}

func (k *kernel) picker(log *zap.Logger) picker {
	load := func(ctx context.Context, a scheduler.Algorithm) error {
		return nodecheck.LoadScheduler(ctx, k.modules.Ensure, a)
	}
	return picker{log: log, servers: k.servers, modules: os.DirFS("/sys/module"), load: load, lacking: k.withModuleHint}
}

// pick returns the wanted scheduler if the kernel has it, and else the default, which it logs.
func (p picker) pick(ctx context.Context, want scheduler.Spec) (scheduler.Spec, error) {
	err := p.try(ctx, want)
	if err == nil {
		return want, nil
	}
	if !errors.Is(err, vserver.ErrUnsupported) || want.Name() == scheduler.Default {
		return want, err
	}
	p.log.Warn("the kernel lacks the scheduler, using "+scheduler.Default+" instead", zap.Stringer("scheduler", want), zap.Error(err))
	fallback := scheduler.MustParse(scheduler.Default)
	return fallback, p.try(ctx, fallback)
}

// try returns nil if the kernel has a scheduler. A loaded module, or a virtual server that uses the
// scheduler, proves it without a write, so that a restart in an unchanged cluster writes nothing.
// Without either it probes.
func (p picker) try(ctx context.Context, s scheduler.Spec) error {
	if p.live(s.Algorithm().Module) {
		return nil
	}
	used, err := p.used(ctx, s.Name())
	if err != nil || used {
		return err
	}
	return p.probe(ctx, s)
}

// probe makes a virtual server with the scheduler, and removes it. It first loads a module that the kernel
// must not load for it.
func (p picker) probe(ctx context.Context, s scheduler.Spec) error {
	err := p.load(ctx, s.Algorithm())
	if err == nil {
		err = vserver.ProbeWith(ctx, p.servers, s.Name())
	}
	if err != nil {
		return p.lacking(s.Algorithm().Module, fmt.Errorf("try scheduler %s in the kernel: %w", s, err))
	}
	return nil
}

// tryScheduler probes a scheduler that a Service asks for. Without IPVS none is used.
func (d *daemon) tryScheduler(ctx context.Context, s scheduler.Spec) error {
	if d.live.now().Mode != config.ModeIPVS {
		return nil
	}
	k := d.kernel.picker(d.log)
	if k.live(s.Algorithm().Module) {
		return nil
	}
	return k.probe(ctx, s)
}

// tryGUE probes the tunnels that a Service asks for. Without IPVS none is used.
func (d *daemon) tryGUE(ctx context.Context) error {
	if d.live.now().Mode != config.ModeIPVS {
		return nil
	}
	return d.kernel.servers.ProbeGUE(ctx)
}

// live reports whether a module is loaded and ready, so that its scheduler is registered. A module
// that is built in has no such file.
func (p picker) live(module string) bool {
	state, err := fs.ReadFile(p.modules, module+"/initstate")
	return err == nil && string(state) == "live\n"
}

// used reports whether a virtual server uses a scheduler. It lists all servers, which takes long
// where there are many.
func (p picker) used(ctx context.Context, name string) (bool, error) {
	servers, err := p.servers.ListServers(ctx)
	for _, s := range servers {
		if s.Scheduler == name {
			return true, err
		}
	}
	return false, err
}

// reportSchedulerFallback sends an Event if the kernel lacks the configured scheduler.
func (d *daemon) reportSchedulerFallback(asked config.Config) {
	if now := d.live.now(); now.Mode == config.ModeIPVS && now.Scheduler != asked.Scheduler {
		d.events.Node(events.SchedulerUnavailable, fmt.Sprintf("the kernel lacks scheduler %s, using %s", asked.Scheduler, now.Scheduler))
	}
}
