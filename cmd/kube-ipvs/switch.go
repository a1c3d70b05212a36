package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/config"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs"
	"github.com/kube-ipvs/kube-ipvs/internal/events"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// This file is what happens when another mode carries Services than before: at a start,
// and when IPVS appears on a node that fell back.

// leaveIPVS takes away what ipvs mode has left on a node that iptables mode carries now:
// its rules come first, so what is left of IPVS carries only connections that are older,
// and those get the time that endpoints get that leave.
func (p *program) leaveIPVS(ctx context.Context) error {
	if p.carrier.Load().ipvs != nil || !p.await(ctx, guardPeriod, func() bool { return p.loop.Condition().Served }) {
		return nil
	}
	k, _, err := openRemains(ctx, p.log, p.live.now())
	if err != nil {
		p.log.Warn("what ipvs mode may have left stays", zap.Error(err))
		return nil
	}
	defer func() { _ = k.close(nil) }()
	switch there, err := k.holdsIPVS(ctx); {
	case err != nil:
		p.log.Warn("what ipvs mode may have left stays", zap.Error(err))
		return nil
	case !there:
		return nil
	}
	drain := p.live.now().Drain
	p.log.Info("ipvs mode left something here, which goes when its connections had their time", zap.Duration("in", drain))
	if p.await(ctx, drain, func() bool { return len(p.known.Unsynced()) == 0 }) { // what is not known may be carried by IPVS alone
		insist(ctx, func() bool { return p.sweepIPVS(ctx, k) })
	}
	return nil
}

// The pauses between tries of what has to be done once.
const (
	insistMin = time.Second
	insistMax = time.Minute
)

// insist does something until it is done, or ctx ends.
func insist(ctx context.Context, do func() (done bool)) {
	for pause := insistMin; !do(); pause = min(2*pause, insistMax) {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// await waits for a time again and again until something is so; false: ctx ended.
func (p *program) await(ctx context.Context, period time.Duration, is func() bool) bool {
	for {
		select {
		case <-ctx.Done():
			return false
		case <-time.After(period):
			if is() {
				return true
			}
		}
	}
}

// holdsIPVS asks what costs little: whether there is a device, a route or a set of ipvs mode.
func (k *kernel) holdsIPVS(ctx context.Context) (bool, error) {
	if there, err := k.link.There(ctx); err != nil || there {
		return there, err
	}
	routes, err := k.link.ListRoutes(ctx)
	if err != nil || len(routes) > 0 || k.sets == nil {
		return len(routes) > 0, err
	}
	found, err := k.sets.ListSets(ctx)
	for _, s := range found {
		if ipvs.OwnedSet(s.Name) {
			return true, err
		}
	}
	return false, err
}

// sweepIPVS removes what ipvs mode has left, and tells whether nothing remains to be done.
// The loop does it, for the rules are its own.
func (p *program) sweepIPVS(ctx context.Context, k *kernel) (done bool) {
	both := model.Families()
	k.rules, k.own = p.kernel.rules, p.kernel.own
	mode := k.newMode(p.log, fixed(p.live.now()), both[:], nil)
	removed, promoted := 0, false
	err := p.loop.Sweep(ctx, func(ctx context.Context) error {
		if promoted = p.ipvsMode() != nil; promoted {
			return nil
		}
		if err := knowHost(ctx, mode, k.link); err != nil {
			return err
		}
		if err := dataplane.Sweep(ctx, mode.HandOver(ipvs.SuccessorOurs), func(r dataplane.Result) { removed += r.Total().Written() }); err != nil {
			return err
		}
		p.kernel.bound.Store(false)
		p.carrier.Load().rules.Rebase()
		p.kernel.tuner.RestoreKeys(ctx, slices.Concat(ipvsAlone, strictARP)...) // each is logged
		return nil
	})
	switch {
	case ctx.Err() != nil: // told to stop
	case promoted:
		p.log.Info("what ipvs mode left stays: ipvs mode uses it again")
	case err != nil:
		p.log.Warn("some of what ipvs mode left stays, and will be tried again", zap.Error(err))
		return false
	default:
		p.log.Info("what ipvs mode left is removed", zap.Int("rows", removed))
	}
	return true
}

// lookForIPVS is how often a node that fell back asks whether it has IPVS by now.
const lookForIPVS = 15 * time.Second

// awaitIPVS waits for IPVS on a node that fell back. It says so once, and with --promote
// changes to ipvs mode.
func (p *program) awaitIPVS(ctx context.Context) error {
	if p.chosen.missing == nil || !p.await(ctx, lookForIPVS, func() bool { return p.ipvsThere(ctx) && p.loop.Condition().Served }) {
		return nil
	}
	if !p.live.now().Promote {
		const hint = "this kernel can carry Services in ipvs mode by now: restart the agent, or let it change by itself with --promote"
		p.log.Info(hint)
		p.events.Node(events.ProxyModeAvailable, hint)
		return nil
	}
	promoted := func() bool {
		err := p.promote(ctx)
		if err != nil && ctx.Err() == nil {
			p.log.Warn("change to ipvs mode failed, iptables mode goes on", zap.Error(err))
		}
		return err == nil
	}
	if !promoted() && !p.await(ctx, lookForIPVS, promoted) {
		return nil
	}
	return p.tryReuse(ctx)
}

// ipvsThere asks without loading anything: who loads the module wants it.
func (p *program) ipvsThere(ctx context.Context) bool {
	s, err := vserver.New(p.log, vserver.Options{})
	if err != nil {
		return false
	}
	defer s.Close()
	if _, err := s.ListServers(ctx); err != nil {
		return false
	}
	sets, err := openSets(ctx, nil)
	if err != nil {
		return false
	}
	_ = sets.Close() // nothing was written to it
	return probeDummy(ctx, p.log) == nil
}

// promote changes to ipvs mode between two cycles. The new mode takes over from the rules
// of the old one as it does from kube-proxy's: they carry until all of it stands.
func (p *program) promote(ctx context.Context) error {
	k, c := p.kernel, p.live.now()
	picked, err := k.tryIPVS(ctx, p.log, c)
	if err != nil {
		return err
	}
	promote := func(c *config.Config) { c.Mode, c.Scheduler = config.ModeIPVS, picked }
	next := p.newCarrier(ctx, func() config.Config {
		c := p.live.now()
		promote(&c)
		return c
	})
	promote(&c)
	err = p.loop.Replace(ctx, next, periods(c), func(context.Context) error {
		p.live.change(promote)
		p.carrier.Store(next)
		return nil
	})
	if err != nil {
		return k.closeIPVS(fmt.Errorf("change to ipvs mode: %w", err))
	}
	p.metrics.Mode(string(p.chosen.asked), string(config.ModeIPVS))
	p.log.Info("ipvs mode carries Services now", zap.Stringer("scheduler", picked))
	p.events.Node(events.ProxyModeChanged, "ipvs mode carries Services now")
	return nil
}
