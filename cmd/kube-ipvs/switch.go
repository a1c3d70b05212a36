package main

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs"
	"github.com/kube-ipvs/kube-ipvs/internal/events"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/link"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/ipset"
)

// This file is what happens when another mode carries Services than before: at a start,
// and when IPVS appears on a node that fell back.

// leaveIPVS takes away what ipvs mode has left on a node that iptables mode carries now:
// its rules come first, so what is left of IPVS carries only connections that are older,
// and those get the time that endpoints get that leave.
func (p *program) leaveIPVS(ctx context.Context) error {
	if p.carrier.ipvs != nil || !p.await(ctx, servedPollInterval, func() bool { return p.loop.Condition().Served }) {
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
	removed := 0
	err := p.loop.Sweep(ctx, func(ctx context.Context) error {
		if err := knowHost(ctx, mode, k.link); err != nil {
			return err
		}
		if err := dataplane.Sweep(ctx, mode.HandOver(ipvs.SuccessorOurs), func(r dataplane.Result) { removed += r.Total().Written() }); err != nil {
			return err
		}
		p.kernel.bound.Store(false)
		p.carrier.rules.Rebase()
		p.kernel.tuner.RestoreKeys(ctx, slices.Concat(ipvsAlone, strictARP)...) // each is logged
		return nil
	})
	switch {
	case ctx.Err() != nil: // told to stop
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

// errIPVSAppeared ends an agent that fell back, so that the next one runs ipvs mode.
var errIPVSAppeared = errors.New("this kernel can carry Services in ipvs mode by now: the agent ends, and the next one takes over from its rules, " +
	"which carry all traffic until then. Start it again where no supervisor does")

// lastWords is how long the Event may take to the API server before the agent ends.
const lastWords = 2 * time.Second

// awaitIPVS ends the agent when IPVS appears on a node that fell back.
func (p *program) awaitIPVS(ctx context.Context) error {
	if p.chosen.missing == nil || !p.await(ctx, lookForIPVS, func() bool { return p.loop.Condition().Served && p.ipvsWorks(ctx) }) {
		return nil
	}
	p.events.Node(events.ProxyModeAvailable, "this kernel can carry Services in ipvs mode by now: the agent starts again")
	if !p.await(ctx, lastWords, func() bool { return true }) {
		return nil
	}
	return errIPVSAppeared
}

// ipvsWorks tries what the next start will try, once the modules are there: who loads them
// wants ipvs mode.
func (p *program) ipvsWorks(ctx context.Context) bool {
	if !p.ipvsThere(ctx) {
		return false
	}
	_, err := p.kernel.tryIPVS(ctx, p.log, p.live.now())
	if err == nil {
		err = p.kernel.closeIPVS(nil)
	}
	if err != nil && ctx.Err() == nil {
		p.log.Warn("the modules of IPVS are there, but ipvs mode would not start: iptables mode goes on", zap.Error(err))
	}
	return err == nil
}

// ipvsThere asks without loading anything.
func (p *program) ipvsThere(ctx context.Context) bool {
	s, err := vserver.New(p.log, vserver.Options{})
	if err != nil {
		return false
	}
	defer s.Close()
	if _, err := s.ListServers(ctx); err != nil {
		return false
	}
	sets, err := ipset.Open(ctx, ipset.Options{})
	if err != nil {
		return false
	}
	_ = sets.Close() // nothing was written to it
	return link.Probe(ctx, p.log) == nil
}
