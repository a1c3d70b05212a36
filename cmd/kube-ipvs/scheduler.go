package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/config"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/scheduler"
)

// picker finds out whether the kernel balances with the wanted algorithm.
type picker struct {
	log     *zap.Logger
	servers interface {
		vserver.ServerWriter
		ListServers(ctx context.Context) (map[vserver.ServerKey]vserver.Server, error)
	}
	modules fs.FS // of /sys/module
	lacking func(module string, err error) error
}

func (k *kernel) picker(log *zap.Logger) picker {
	return picker{log: log, servers: k.servers, modules: os.DirFS("/sys/module"), lacking: k.lacking}
}

// pick returns the wanted algorithm where the kernel has it. One that is not there
// costs the choice, not the node: round robin serves instead, and says so.
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

// try asks what costs least first. A module that is there, or a virtual server that
// uses the algorithm, proves it without a write, so that a restart on an unchanged
// cluster writes nothing; only the lack of both says nothing, and has to be tried.
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

// probe has the kernel use the algorithm for a moment.
func (p picker) probe(ctx context.Context, s scheduler.Spec) error {
	if err := vserver.ProbeWith(ctx, p.servers, s.Name()); err != nil {
		return p.lacking(s.Algorithm().Module, fmt.Errorf("try scheduler %s in the kernel: %w", s, err))
	}
	return nil
}

// tryScheduler asks for one that a Service asks for. Without IPVS none is used.
func (p *program) tryScheduler(ctx context.Context, s scheduler.Spec) error {
	if p.live.now().Mode != config.ModeIPVS {
		return nil
	}
	k := p.kernel.picker(p.log)
	if k.live(s.Algorithm().Module) {
		return nil
	}
	return k.probe(ctx, s)
}

// tryGUE asks for tunnels that a Service asks for. Without IPVS none is used.
func (p *program) tryGUE(ctx context.Context) error {
	if p.live.now().Mode != config.ModeIPVS {
		return nil
	}
	return p.kernel.servers.ProbeGUE(ctx)
}

// live tells whether a module is loaded and ready: its scheduler is registered then.
// One that is built in has no such file.
func (p picker) live(module string) bool {
	state, err := fs.ReadFile(p.modules, module+"/initstate")
	return err == nil && string(state) == "live\n"
}

// used reads all virtual servers, which takes long where there are many.
func (p picker) used(ctx context.Context, name string) (bool, error) {
	servers, err := p.servers.ListServers(ctx)
	for _, s := range servers {
		if s.Scheduler == name {
			return true, err
		}
	}
	return false, err
}
