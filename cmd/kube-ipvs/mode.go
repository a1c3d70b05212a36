package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/config"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/iptables"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs"
	"github.com/kube-ipvs/kube-ipvs/internal/events"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/link"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/internal/printable"
	"github.com/kube-ipvs/kube-ipvs/ipset"
	"github.com/kube-ipvs/kube-ipvs/scheduler"
)

// choice is which mode was asked for, which one runs, and why that is another.
type choice struct {
	asked config.Mode
	// active is never ModeAuto.
	active config.Mode
	// missing is what the kernel lacks for ipvs mode; nil if it lacks nothing that was asked for.
	missing error
	// implied: a file of kube-proxy leaves the mode to the program.
	implied bool
}

// openKernel opens the kernel handles of the wanted mode, or on a kernel without IPVS
// those of iptables mode (internal/DECISIONS.md, Missing IPVS). The returned settings
// name the mode that runs and a scheduler that the kernel has.
func openKernel(ctx context.Context, log *zap.Logger, c config.Config) (*kernel, config.Config, choice, error) {
	chosen := choice{asked: c.Mode, active: c.Mode, implied: c.ModeImplied}
	k, err := openBase(ctx, log, c)
	if err != nil {
		return nil, c, chosen, fmt.Errorf("no mode can run on this node: %w", err)
	}
	if c.Mode == config.ModeIPTables {
		return k, c, chosen, nil
	}
	with := c
	with.Mode, chosen.active = config.ModeIPVS, config.ModeIPVS
	if with.Scheduler, err = k.tryIPVS(ctx, log, c); err == nil {
		return k, with, chosen, nil
	}
	if !lacksIPVS(err) || c.Mode == config.ModeIPVS && c.OnMissing == config.OnMissingFail {
		return nil, c, chosen, k.close(fmt.Errorf("ipvs mode cannot run on this node%s: %w", orElse(c, err), err))
	}
	c.Mode, chosen.active, chosen.missing = config.ModeIPTables, config.ModeIPTables, err
	return k, c, chosen, nil
}

// orElse says what would have let the agent start all the same.
func orElse(c config.Config, err error) string {
	if lacksIPVS(err) && c.OnMissing == config.OnMissingFail {
		return ", and --on-missing-ipvs=fail forbids iptables mode"
	}
	return ""
}

// tryIPVS opens IPVS and uses it: what a kernel lists says less.
func (k *kernel) tryIPVS(ctx context.Context, log *zap.Logger, c config.Config) (picked scheduler.Spec, err error) {
	if err := k.openIPVS(ctx, log, c); err != nil {
		return c.Scheduler, err
	}
	if picked, err = k.picker(log).pick(ctx, c.Scheduler); err != nil {
		return c.Scheduler, k.closeIPVS(err)
	}
	return picked, nil
}

// lacksIPVS tells a kernel that lacks something from one that could not be asked: who has
// no right to ask does not know.
func lacksIPVS(err error) bool {
	if errors.Is(err, os.ErrPermission) {
		return false
	}
	return errors.Is(err, vserver.ErrUnsupported) || errors.Is(err, ipset.ErrUnsupported) || errors.Is(err, link.ErrUnsupported)
}

// say tells people, once, what runs instead of what was asked for.
func (c choice) say(log *zap.Logger, tell *events.Recorder) {
	if c.missing == nil {
		c.sayImplied(log, tell)
		return
	}
	if c.asked == config.ModeAuto {
		log.Info("iptables mode: this kernel has no IPVS", zap.Error(c.missing))
		return
	}
	log.Warn("falling back to iptables mode: this kernel cannot carry Services in ipvs mode. "+
		"Every Service goes on working; schedulers and weights do not apply", zap.Error(c.missing))
	if tell != nil {
		tell.Node(events.ProxyModeFallback, "iptables mode carries Services, because this kernel lacks what ipvs mode needs: "+printable.OneLine(c.missing))
	}
}

// sayImplied reports ipvs mode where a file of kube-proxy, such as kubeadm's, has mode "".
func (c choice) sayImplied(log *zap.Logger, tell *events.Recorder) {
	if !c.implied || c.active != config.ModeIPVS {
		return
	}
	const what = "ipvs mode carries Services, because the configuration leaves mode empty; kube-proxy would run iptables mode. " +
		"Set mode or --proxy-mode to choose"
	log.Info(what)
	if tell != nil {
		tell.Node(events.ProxyModeImplied, what)
	}
}

// carrier is the mode that runs, as the rooms around the loop see it.
type carrier struct {
	dataplane.Inspectable
	ipvs  *ipvs.Mode     // nil in another mode
	rules *iptables.Mode // nil in another mode
}

// newCarrier makes the mode that settings name.
func (p *program) newCarrier(ctx context.Context, now settings) *carrier {
	var flows ipvs.Flows // the same for both modes
	if p.sweeper != nil {
		flows = p.sweeper
	}
	if now().Mode == config.ModeIPTables {
		m := p.kernel.newRulesMode(ctx, p.log, now, p.served, flows, len(p.follow.origins) > 1)
		return &carrier{Inspectable: m, rules: m}
	}
	m := p.kernel.newMode(p.log, now, p.served, flows)
	return &carrier{Inspectable: m, ipvs: m}
}

// exclude leaves virtual servers to others, where there are any.
func (c *carrier) exclude(ctx context.Context, cidrs []netip.Prefix) error {
	if c.ipvs == nil {
		return nil
	}
	return c.ipvs.Exclude(ctx, cidrs)
}

// reload reads all rules again after somebody else has changed them.
func (c *carrier) reload(ctx context.Context) error {
	if c.ipvs != nil {
		return c.ipvs.ReloadRules(ctx)
	}
	return c.rules.ReloadRules(ctx)
}
