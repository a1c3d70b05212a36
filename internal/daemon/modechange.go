package daemon

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/config"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/migrate"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/sets"
	"github.com/kube-ipvs/kube-ipvs/internal/events"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/link"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/sysctl"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/wiring"
	"github.com/kube-ipvs/kube-ipvs/ipset"
)

// leaveIPVS removes what ipvs mode has left on a node that runs iptables mode now. Its rules
// precede IPVS in every hook, so the rest of IPVS carries only older connections. They get the time
// of draining endpoints.
func (d *daemon) leaveIPVS(ctx context.Context) error {
	if d.mode.ipvs != nil || !await(ctx, servedPollInterval, func() bool { return d.loop.Condition().Served }) {
		return nil
	}
	k, _, err := openForCleanup(ctx, d.log, d.live.now())
	if err != nil {
		d.log.Warn("cannot look for remains of ipvs mode, they stay in the kernel", zap.Error(err))
		return nil
	}
	defer func() { _ = k.close(nil) }()
	switch there, err := k.holdsIPVS(ctx); {
	case err != nil:
		d.log.Warn("cannot look for remains of ipvs mode, they stay in the kernel", zap.Error(err))
		return nil
	case !there:
		return nil
	}
	drain := d.live.now().Drain
	d.log.Info("remains of ipvs mode carry connections, they will be removed after the drain time", zap.Duration("in", drain))
	if await(ctx, drain, func() bool { return len(d.known.Unsynced()) == 0 }) { // IPVS alone may carry a Service that is not known yet
		retryUntilDone(ctx, func() bool { return d.sweepIPVS(ctx, k) })
	}
	return nil
}

// The pauses between two tries.
const (
	minRetryPause = time.Second
	maxRetryPause = time.Minute
)

// retryUntilDone calls do until it is done, or ctx ends.
func retryUntilDone(ctx context.Context, do func() (done bool)) {
	for pause := minRetryPause; !do(); pause = min(2*pause, maxRetryPause) {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// await waits for a time again and again until something is so; false: ctx ended.
func await(ctx context.Context, period time.Duration, is func() bool) bool {
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

// holdsIPVS reports whether there is a device, a route or a set of ipvs mode, which is cheap to read.
func (k *kernel) holdsIPVS(ctx context.Context) (bool, error) {
	if there, err := k.link.There(ctx); err != nil || there {
		return there, err
	}
	routes, err := k.link.ListRoutes(ctx)
	if err != nil || len(routes) > 0 || k.backend != nil {
		return err == nil, err
	}
	if k.sets == nil {
		return false, nil
	}
	found, err := k.sets.ListSets(ctx)
	for _, s := range found {
		if sets.Owned(s.Name) {
			return true, err
		}
	}
	return false, err
}

// sweepIPVS removes what ipvs mode has left, and reports whether that is done. The loop does it,
// because the rules are the loop's.
func (d *daemon) sweepIPVS(ctx context.Context, k *kernel) (done bool) {
	both := model.Families()
	k.rules, k.own = d.kernel.rules, d.kernel.own
	mode := k.newMode(d.log, wiring.Static(d.live.now()), both[:], nil)
	removed := 0
	err := d.loop.Sweep(ctx, func(ctx context.Context) error {
		if err := knowHost(ctx, mode, k.link); err != nil {
			return err
		}
		if err := dataplane.Sweep(ctx, mode.HandOver(migrate.TargetOurs), func(r dataplane.Result) { removed += r.Total().Written() }); err != nil {
			return err
		}
		d.kernel.bound.Store(false)
		d.mode.rules.Rebase()
		d.kernel.sysctls.RestoreKeys(ctx, slices.Concat(ipvsAlone, sysctl.PickupKeys(), strictARP)...) // each is logged
		return nil
	})
	switch {
	case ctx.Err() != nil: // told to stop
	case err != nil:
		d.log.Warn("removing remains of ipvs mode failed, will be tried again", zap.Error(err))
		return false
	default:
		d.log.Info("remains of ipvs mode are removed", zap.Int("rows", removed))
	}
	return true
}

// ipvsPollInterval is the time between two tries of a node that fell back to find IPVS.
const ipvsPollInterval = 15 * time.Second

// errIPVSAppeared ends an agent that fell back, so that the next one runs ipvs mode.
var errIPVSAppeared = errors.New("this kernel now supports ipvs mode: the agent exits, and the next one takes over from its rules, " +
	"which carry all traffic until then. Without a supervisor, start the agent again")

// eventDelay is the time that the Event has to reach the API server before the agent ends.
const eventDelay = 2 * time.Second

// awaitIPVS ends the agent when IPVS appears on a node that fell back.
func (d *daemon) awaitIPVS(ctx context.Context) error {
	if d.chosen.missing == nil || !await(ctx, ipvsPollInterval, func() bool { return d.loop.Condition().Served && d.ipvsWorks(ctx) }) {
		return nil
	}
	d.events.Node(events.ProxyModeAvailable, "this kernel now supports ipvs mode: the agent exits to be restarted in it")
	if !await(ctx, eventDelay, func() bool { return true }) {
		return nil
	}
	return errIPVSAppeared
}

// ipvsWorks tries what the next start will try, once the modules are loaded: the operator who loads
// them wants ipvs mode.
func (d *daemon) ipvsWorks(ctx context.Context) bool {
	if !d.ipvsThere(ctx) {
		return false
	}
	_, err := d.kernel.tryIPVS(ctx, d.log, d.live.now())
	if err == nil {
		err = d.kernel.closeIPVS(nil)
	}
	if err != nil && ctx.Err() == nil {
		d.log.Warn("the kernel modules of IPVS are loaded, but ipvs mode cannot start, iptables mode stays", zap.Error(err))
	}
	return err == nil
}

// ipvsThere reports whether IPVS and sets answer. It loads no module.
func (d *daemon) ipvsThere(ctx context.Context) bool {
	s, err := vserver.New(d.log, vserver.Options{})
	if err != nil {
		return false
	}
	defer s.Close()
	if _, err := s.ListServers(ctx); err != nil {
		return false
	}
	switch sets, err := ipset.Open(ctx, ipset.Options{}); {
	case err == nil:
		_ = sets.Close() // nothing was written to it
	case !errors.Is(err, ipset.ErrUnsupported) || d.live.now().Rules == config.RulesIPTables:
		return false // without ipset, nftables may take its place
	}
	return link.Probe(ctx, d.log) == nil
}
