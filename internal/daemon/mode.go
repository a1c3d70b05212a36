package daemon

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync/atomic"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/config"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/iptables"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs"
	"github.com/kube-ipvs/kube-ipvs/internal/events"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/link"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/internal/printable"
	"github.com/kube-ipvs/kube-ipvs/internal/wiring"
	"github.com/kube-ipvs/kube-ipvs/ipset"
	"github.com/kube-ipvs/kube-ipvs/scheduler"
)

// modeDecision has the mode that was asked for, the one that runs, and why it is another.
type modeDecision struct {
	asked config.Mode
	// active is never ModeAuto.
	active config.Mode
	// missing is what the kernel lacks for ipvs mode, nil for nothing.
	missing error
	// implied: a file of kube-proxy leaves the mode to the program.
	implied bool
}

// openKernel opens the kernel handles of the wanted mode, or on a kernel without IPVS
// those of iptables mode (internal/DECISIONS.md, Missing IPVS). The returned settings
// name the mode that runs, where its rules are, and a scheduler that the kernel has.
func openKernel(ctx context.Context, log *zap.Logger, c config.Config) (*kernel, config.Config, modeDecision, error) {
	chosen := modeDecision{asked: c.Mode, active: c.Mode, implied: c.ModeImplied}
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
		with.Rules = k.ruleStore.active
		return k, with, chosen, nil
	}
	if !lacksIPVS(err) || c.Mode == config.ModeIPVS && c.OnMissing == config.OnMissingFail {
		return nil, c, chosen, k.close(fmt.Errorf("ipvs mode cannot run on this node%s: %w", orElse(c, err), err))
	}
	if k.rules == nil {
		return nil, c, chosen, k.close(noMode(err, k.noIPTables))
	}
	c.Mode, chosen.active, chosen.missing = config.ModeIPTables, config.ModeIPTables, err
	return k, c, chosen, nil
}

// orElse names the setting that forbids iptables mode.
func orElse(c config.Config, err error) string {
	if lacksIPVS(err) && c.OnMissing == config.OnMissingFail {
		return ", and --on-missing-ipvs=fail forbids iptables mode"
	}
	return ""
}

// noMode is the error of a node that has neither what ipvs mode needs nor iptables. Both errors have
// remedies.
func noMode(noIPVS, noIPTables error) error {
	lacks := "what ipvs mode needs"
	if errors.Is(noIPVS, vserver.ErrUnsupported) {
		lacks = "IPVS"
	}
	return fmt.Errorf("no mode can run on this node: it lacks %s, and it lacks iptables\n  ipvs mode: %w\n  iptables mode: %w", lacks, noIPVS, noIPTables)
}

// tryIPVS opens IPVS and uses it, because a list of the kernel's schedulers proves less.
func (k *kernel) tryIPVS(ctx context.Context, log *zap.Logger, c config.Config) (picked scheduler.Spec, err error) {
	if err := k.openIPVS(ctx, log, c); err != nil {
		return c.Scheduler, err
	}
	if picked, err = k.picker(log).pick(ctx, c.Scheduler); err != nil {
		return c.Scheduler, k.closeIPVS(err)
	}
	return picked, nil
}

// lacksIPVS reports whether err means that the kernel lacks something. A process without the
// right to ask does not know.
func lacksIPVS(err error) bool {
	if errors.Is(err, os.ErrPermission) {
		return false
	}
	return errors.Is(err, vserver.ErrUnsupported) || errors.Is(err, ipset.ErrUnsupported) || errors.Is(err, link.ErrUnsupported)
}

// report logs the mode that runs instead of the one that was asked for, and sends an Event.
func (c modeDecision) report(log *zap.Logger, to *events.Recorder) {
	if c.missing == nil {
		c.reportImplied(log, to)
		return
	}
	if c.asked == config.ModeAuto {
		log.Info("iptables mode: this kernel has no IPVS", zap.Error(c.missing))
		return
	}
	log.Warn("falling back to iptables mode: this kernel cannot carry Services in ipvs mode. "+
		"All Services keep working; schedulers and weights have no effect", zap.Error(c.missing))
	if to != nil {
		to.Node(events.ProxyModeFallback, "iptables mode carries Services, because this kernel lacks what ipvs mode needs: "+printable.OneLine(c.missing))
	}
}

// reportImplied reports ipvs mode where a file of kube-proxy, such as kubeadm's, has mode "".
func (c modeDecision) reportImplied(log *zap.Logger, to *events.Recorder) {
	if !c.implied || c.active != config.ModeIPVS {
		return
	}
	const what = "ipvs mode carries Services, because the configuration leaves mode empty; kube-proxy would run iptables mode. " +
		"Set mode or --proxy-mode to choose"
	log.Info(what)
	if to != nil {
		to.Node(events.ProxyModeImplied, what)
	}
}

// activeMode is the mode that runs, as the tasks beside the loop see it.
type activeMode struct {
	dataplane.Inspectable
	ipvs  *ipvs.Mode     // nil in another mode
	rules *iptables.Mode // nil in another mode
	// unlocking is true while an address of the API server is checked, see refused.
	unlocking atomic.Bool
}

// newActiveMode returns the mode that the settings name.
func (d *daemon) newActiveMode(ctx context.Context, now wiring.Settings) *activeMode {
	var flows ipvs.Flows // the same for both modes
	if d.sweeper != nil {
		flows = d.sweeper
	}
	if now().Mode == config.ModeIPTables {
		m := d.kernel.newRulesMode(ctx, d.log, now, d.served, flows, len(d.sources.origins) > 1)
		return &activeMode{Inspectable: m, rules: m}
	}
	m := d.kernel.newMode(d.log, now, d.served, flows)
	return &activeMode{Inspectable: m, ipvs: m}
}

// exclude leaves the virtual servers of some ranges to other programs.
func (m *activeMode) exclude(ctx context.Context, cidrs []netip.Prefix) error {
	if m.ipvs == nil {
		return nil
	}
	return m.ipvs.Exclude(ctx, cidrs)
}

// reload reads all rules again after another program changed them.
func (m *activeMode) reload(ctx context.Context) error {
	if m.ipvs != nil {
		return m.ipvs.ReloadRules(ctx)
	}
	return m.rules.ReloadRules(ctx)
}
