package nodecheck

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/config"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/sets"
	"github.com/kube-ipvs/kube-ipvs/internal/diagnosis"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/link"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/modules"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/procfs"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/sysctl"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/nodecheck/host"
	"github.com/kube-ipvs/kube-ipvs/ipset"
	"github.com/kube-ipvs/kube-ipvs/scheduler"
)

// ipvsChecks returns the checks of what ipvs mode needs besides rules.
func ipvsChecks(log *zap.Logger, n *host.Node, c config.Config, served []model.Family) []diagnosis.Check {
	checks := []diagnosis.Check{{Name: "device " + link.DefaultName, Fix: n.ModuleFix("dummy"), Run: func(ctx context.Context) error {
		return grade(link.Probe(ctx, log), link.ErrUnsupported)
	}}}
	probe := func(ctx context.Context, name string) error { return probeScheduler(ctx, log, n, name) }
	checks = append(checks, schedulerChecks(n.ModuleFix, c.Scheduler, probe)...)
	checks = append(checks, otherSchedulers(c.Scheduler, probe))
	if c.Rules != config.RulesNFTables {
		checks = append(checks, setChecks(n.ModuleFix, served, revision)...)
	}
	return append(checks, timeoutChecks(n, c.Timeouts, func() (timeoutsHandle, error) { return vserver.New(log, vserver.Options{}) })...)
}

// softened makes a warning of what is missing, unless the agent would fail to start without it.
func softened(c config.Config, checks []diagnosis.Check) []diagnosis.Check {
	if c.Mode == config.ModeIPVS && c.OnMissing == config.OnMissingFail {
		return checks
	}
	for i, check := range checks {
		checks[i].Run = func(ctx context.Context) error {
			err := check.Run(ctx)
			if diagnosis.IsLacking(err) {
				return diagnosis.Warning(fmt.Errorf("%w; the agent would use iptables mode instead", err))
			}
			return err
		}
	}
	return checks
}

// schedulerChecks returns the checks of the wanted algorithm, and of the one that the agent uses
// where the kernel lacks it. Only without the latter the node cannot serve.
func schedulerChecks(fix func(module string) string, want scheduler.Spec, probe func(ctx context.Context, name string) error) []diagnosis.Check {
	specs := []scheduler.Spec{want}
	if want.Name() != scheduler.Default {
		specs = append(specs, scheduler.MustParse(scheduler.Default))
	}
	checks := make([]diagnosis.Check, 0, len(specs))
	for _, s := range specs {
		checks = append(checks, diagnosis.Check{Name: "ipvs scheduler " + s.Name(), Fix: fix(s.Algorithm().Module), Run: func(ctx context.Context) error {
			err := probe(ctx, s.Name())
			if s.Name() != scheduler.Default && errors.Is(err, vserver.ErrUnsupported) {
				return diagnosis.Warning(fmt.Errorf("%w; the agent would use %s instead", err, scheduler.Default))
			}
			return grade(err, vserver.ErrUnsupported)
		}})
	}
	return checks
}

// otherSchedulers returns the check of all other algorithms, which annotations of Services may ask
// for. The agent uses the default for a Service whose algorithm this kernel lacks.
func otherSchedulers(want scheduler.Spec, probe func(ctx context.Context, name string) error) diagnosis.Check {
	return diagnosis.Check{Name: "other schedulers", Fix: "run as root", Run: func(ctx context.Context) error {
		var have, lack []string
		for _, name := range scheduler.Names() {
			if name == want.Name() || name == scheduler.Default {
				continue
			}
			switch err := probe(ctx, name); {
			case err == nil:
				have = append(have, name)
			case errors.Is(err, vserver.ErrUnsupported):
				lack = append(lack, name)
			default:
				return diagnosis.Warning(err)
			}
		}
		var parts []string
		if len(have) > 0 {
			parts = append(parts, strings.Join(have, " "))
		}
		if len(lack) > 0 {
			parts = append(parts, "not available: "+strings.Join(lack, " "))
		}
		return diagnosis.Note("%s", strings.Join(parts, "; "))
	}}
}

// LoadScheduler loads the module of an algorithm that the kernel must not load on first use
// (scheduler.Algorithm, Sysctl). It comes before each probe. It fails with vserver.ErrUnsupported where the module
// cannot be loaded from here.
func LoadScheduler(ctx context.Context, ensure func(ctx context.Context, module, sysctl string) error, a scheduler.Algorithm) error {
	if a.Sysctl == "" {
		return nil
	}
	err := ensure(ctx, a.Module, a.Sysctl)
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return err
	}
	if err != nil {
		return fmt.Errorf("%w yet: its module must be loaded before, because a load on first use can block IPVS: %w", vserver.ErrUnsupported, err)
	}
	return nil
}

func probeScheduler(ctx context.Context, log *zap.Logger, n *host.Node, name string) error {
	if err := LoadScheduler(ctx, n.EnsureModule, scheduler.MustParse(name).Algorithm()); err != nil {
		return err
	}
	s, err := vserver.New(log, vserver.Options{})
	if err != nil {
		return err
	}
	defer s.Close()
	return s.Probe(ctx, name)
}

// setChecks returns a check for each type of set in each family that is served.
func setChecks(fix func(module string) string, served []model.Family, ask func(context.Context, ipset.Set) error) []diagnosis.Check {
	var checks []diagnosis.Check
	asked := map[string]bool{}
	for _, set := range sets.All() {
		name := "sets of type " + string(set.Type)
		switch set.Family {
		case ipset.IPv4, ipset.IPv6: // a set of ports has no family
			name += ", " + set.Family.String()
			if !slices.Contains(served, familyOf(set.Family)) {
				continue
			}
		}
		if asked[name] {
			continue
		}
		asked[name] = true
		checks = append(checks, diagnosis.Check{Name: name, Fix: fix("ip_set"), Run: func(ctx context.Context) error {
			return grade(ask(ctx, set), ipset.ErrUnsupported)
		}})
	}
	return checks
}

// setMatchCheck returns the check whether rules of iptables can refer to sets, where rules are in
// iptables.
func setMatchCheck(fix func(module string) string, c config.Config, setMatch error) []diagnosis.Check {
	if c.Rules == config.RulesNFTables {
		return nil
	}
	return []diagnosis.Check{{Name: "iptables match set", Fix: fix("xt_set"), Run: func(context.Context) error {
		return grade(setMatch, rules.ErrUnsupported)
	}}}
}

func familyOf(f ipset.Family) model.Family {
	if f == ipset.IPv6 {
		return model.IPv6
	}
	return model.IPv4
}

// revision returns an error if the kernel does not have the type of a set in its family.
func revision(ctx context.Context, set ipset.Set) error {
	h, err := ipset.New(ipset.Options{})
	if err != nil {
		return err
	}
	defer h.Close()
	_, err = h.Revision(ctx, set.Type, set.Family)
	return err
}

// Modules returns the modules that ipvs mode needs, for Load of kernel/modules. A kernel that has a module
// built in, or loads it on use, answers at once.
func Modules(files procfs.Files, c config.Config) []string {
	list := []string{modules.IPVS(host.SuggestConnTabBits(files)), c.Scheduler.Algorithm().Module, "dummy"}
	if c.Rules == config.RulesNFTables {
		return list
	}
	return append(list, "ip_set", "xt_set")
}

// IPVSSysctls returns the sysctls of ipvs mode. If the release of the kernel cannot be read,
// conn_reuse_mode is not among them.
func IPVSSysctls(files procfs.Files, c config.Config) []sysctl.Sysctl {
	release, _ := files.Release()
	return sysctl.IPVSSysctls(sysctl.IPVSOptions{Release: release, StrictARP: c.StrictARP})
}
