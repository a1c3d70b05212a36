package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/catalog"
	"github.com/kube-ipvs/kube-ipvs/scheduler"
)

// reprobeInterval is how long a refused scheduler or tunnel waits for its module to appear.
const reprobeInterval = 30 * time.Second

// Probes ask the kernel for features that a Service may ask for and a kernel may lack. Nil is a kernel
// that has them.
type Probes struct {
	Scheduler func(context.Context, scheduler.Spec) error
	// GUE probes for tunnels by GUE.
	GUE func(context.Context) error
}

// capabilities owns what the kernel accepts and refuses of the schedulers and tunnels that Services ask
// for. The agent probes each before it compiles a Service that asks for it. A refusal is part of the
// host, so that its Services are compiled again when it ends. It belongs to the loop goroutine.
type capabilities struct {
	log    *zap.Logger
	probes Probes

	accepted    map[scheduler.Spec]bool
	refused     map[scheduler.Spec]string // with the error; replaced and never changed, for the host has it
	gueAccepted bool
	gueRefused  string // the error; empty if GUE was not refused
	changed     bool   // a refusal began or ended since takeChange
}

func newCapabilities(log *zap.Logger, p Probes) capabilities {
	return capabilities{log: log, probes: p, accepted: map[scheduler.Spec]bool{}}
}

// probe probes the features that Services ask for and that were not probed before.
func (c *capabilities) probe(ctx context.Context, inputs []catalog.Input) {
	var round probeRound
	for _, in := range inputs {
		if in.Service == nil || in.Service.Policy == nil {
			continue
		}
		if in.Service.Policy.GUE != 0 && !c.gueAccepted && c.gueRefused == "" {
			c.probeGUE(ctx, &round)
		}
		want := in.Service.Policy.Scheduler
		if _, refused := c.refused[want]; want.IsZero() || refused || c.accepted[want] {
			continue
		}
		c.probeScheduler(ctx, &round, want)
	}
}

// reprobe probes again what the kernel refused.
func (c *capabilities) reprobe(ctx context.Context) {
	var round probeRound
	for s := range c.refused {
		c.probeScheduler(ctx, &round, s)
	}
	if c.gueRefused != "" {
		c.probeGUE(ctx, &round)
	}
}

// lacking reports whether the kernel refuses a feature that a Service asked for.
func (c *capabilities) lacking() bool { return len(c.refused) > 0 || c.gueRefused != "" }

// takeChange reports whether a refusal began or ended since the last call.
func (c *capabilities) takeChange() bool {
	changed := c.changed
	c.changed = false
	return changed
}

// probeScheduler records the kernel's answer about one scheduler. Any error counts as a refusal: the
// scheduler is probed again soon. A probe that was skipped changes nothing about an earlier refusal.
func (c *capabilities) probeScheduler(ctx context.Context, round *probeRound, s scheduler.Spec) {
	if c.probes.Scheduler == nil {
		return
	}
	err := round.run(ctx, func(ctx context.Context) error { return c.probes.Scheduler(ctx, s) })
	if ctx.Err() != nil {
		return // the agent ends
	}
	before, refused := c.refused[s]
	switch {
	case err == nil:
		c.accepted[s] = true
		if refused {
			c.log.Info("the kernel now supports the scheduler", zap.Stringer("scheduler", s))
			c.changeRefused(func(m map[scheduler.Spec]string) { delete(m, s) })
		}
	case !refused || before != err.Error() && !errors.Is(err, errProbeSkipped):
		c.log.Warn("the kernel lacks the scheduler that a service asks for, the scheduler of the node is used", zap.Stringer("scheduler", s), zap.Error(err))
		c.changeRefused(func(m map[scheduler.Spec]string) { m[s] = err.Error() })
	}
}

// probeGUE records the kernel's answer about tunnels by GUE.
func (c *capabilities) probeGUE(ctx context.Context, round *probeRound) {
	if c.probes.GUE == nil {
		return
	}
	err := round.run(ctx, c.probes.GUE)
	if ctx.Err() != nil {
		return // the agent ends
	}
	now := ""
	if c.gueAccepted = err == nil; !c.gueAccepted {
		now = err.Error()
	}
	if now == c.gueRefused || c.gueRefused != "" && errors.Is(err, errProbeSkipped) {
		return
	}
	c.gueRefused, c.changed = now, true
	if c.gueAccepted {
		c.log.Info("the kernel now supports GUE tunnels")
	} else {
		c.log.Warn("the kernel lacks GUE tunnels, which a service asks for, nat is used", zap.Error(err))
	}
}

func (c *capabilities) changeRefused(change func(map[scheduler.Spec]string)) {
	now := maps.Clone(c.refused)
	if now == nil {
		now = map[scheduler.Spec]string{}
	}
	change(now)
	c.refused, c.changed = now, true
}

// A probeRound is a series of probes. A kernel that does not answer one of them would block the loop for
// the deadline of each, so that the round skips those that follow.
type probeRound struct {
	unanswered error // error of the last probe that ran, if it got no answer
}

// errProbeSkipped is the error of a probe that did not run: its answer is unknown.
var errProbeSkipped = errors.New("not probed, because an earlier probe got no answer")

// run runs a probe, or fails with errProbeSkipped after one that got no answer.
func (r *probeRound) run(ctx context.Context, probe func(context.Context) error) error {
	if r.unanswered != nil {
		return fmt.Errorf("%w: %w", errProbeSkipped, r.unanswered)
	}
	err := probe(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		r.unanswered = err
	}
	return err
}
