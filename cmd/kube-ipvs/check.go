package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/config"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs"
	"github.com/kube-ipvs/kube-ipvs/internal/firewall"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/link"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nftables"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/tune"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/ipset"
	"github.com/kube-ipvs/kube-ipvs/scheduler"
)

const checkHelp = `Try everything that the mode of --proxy-mode needs by using it: for ipvs the device,
the schedulers, the set types and iptables, for the families that the agent would serve.
Then look for what hurts Services all the same: sysctls, full tables, checksum offload
of VXLAN, reverse path filters, other owners of IPVS, a kube-proxy, network plug-ins
that serve Services themselves, rules of both kinds of iptables, ports that collide,
firewalls that drop packets to Services.

The first three lines at most say what is wrong, worst first; the table has every
answer, and the remedy below each that needs one. The exit status is 1 when the node
cannot carry Services. Where IPVS is missing the agent falls back to iptables mode, so
that is a warning, unless --on-missing-ipvs=fail says otherwise.

Modules of the kernel that this takes are loaded and stay loaded, as they do for
the agent; nothing else is left behind, and no setting is changed.`

func newCheck() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "check",
		Short: "say what this node lacks, and the remedy",
		Long:  checkHelp,
		Example: `  kube-ipvs check
  kube-ipvs check --ipvs-scheduler mh
  kube-ipvs check --on-missing-ipvs=fail   # must this node carry Services with IPVS?

  # what is wrong, for a program
  kube-ipvs check -o json | jq -r '.items[] | select(.state != "ok") | .name'`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := check(cmd)
			if err != nil {
				return err
			}
			if output != "text" && output != "json" {
				return fmt.Errorf("--output: %q is not one of text, json", output)
			}
			t := tune.New(zap.NewNop(), tune.Options{RunDir: c.RunDir})
			if c.Mode != config.ModeIPTables {
				t.LoadModules(cmd.Context(), modules(t, c)...)
			}
			verdicts := tune.RunChecks(cmd.Context(), nodeChecks(t, c))
			unfit := unfit(c, verdicts)
			return errors.Join(writeCheck(cmd.OutOrStdout(), output, verdicts, unfit == nil), asAnswer(unfit))
		},
	}
	bindOutput(cmd, &output, "text", "json")
	return cmd
}

// checkReport is the answer of check to a program (manifests/schemas/check.schema.json).
type checkReport struct {
	Items []checkItem `json:"items"`
	// Fit tells that the node can carry Services.
	Fit bool `json:"fit"`
}

type checkItem struct {
	Name   string     `json:"name"`
	State  tune.State `json:"state"`
	Detail string     `json:"detail,omitempty"`
	Remedy string     `json:"remedy,omitempty"`
}

func writeCheck(w io.Writer, output string, verdicts []tune.Verdict, fit bool) error {
	if output == "json" {
		report := checkReport{Items: []checkItem{}, Fit: fit}
		for _, v := range verdicts {
			report.Items = append(report.Items, checkItem{v.Name, v.State, v.Detail, v.Fix})
		}
		return page{out: w}.encode(output, report)
	}
	if err := tune.WriteSummary(w, verdicts); err != nil {
		return err
	}
	fmt.Fprintln(w)
	return tune.WriteVerdicts(w, verdicts)
}

// nodeChecks are the questions that only use can answer, and those of the tuner,
// for the families that the agent would serve.
func nodeChecks(t *tune.Tuner, c config.Config) []tune.Check {
	log := zap.NewNop()
	served, err := servedFamilies(log, c)
	checks := []tune.Check{
		{Name: "iptables", Fix: "install iptables and ip6tables; for IPv6, switch it on in the kernel", Run: func(context.Context) error {
			return errors.Join(grade(err, rules.ErrUnsupported), tune.Warning(leftOut(served)))
		}},
	}
	if c.Mode != config.ModeIPTables {
		checks = append(checks, softened(c, ipvsChecks(log, t, c, served))...)
	}
	checks = append(checks, backendCheck(func(ctx context.Context) map[rules.Backend]int { return rules.Census(ctx, rules.Options{}) }))
	checks = append(checks, t.Checks(tune.CheckOptions{IPv6: slices.Contains(served, model.IPv6), NoIPVS: c.Mode == config.ModeIPTables})...)
	checks = append(checks, t.Doctor(doctorOptions(t, c, served))...)
	look := lookAround(log, t, c)
	if c.Mode != config.ModeIPTables {
		checks = append(checks, ownerChecks(look)...)
	}
	return append(checks, wallCheck(c, readFilters(log), frontendsOf(c, look)))
}

// readFilters reads the filters of all programs.
func readFilters(log *zap.Logger) func(context.Context) ([]firewall.Table, error) {
	return func(ctx context.Context) ([]firewall.Table, error) {
		h, err := nftables.New(log, nftables.Options{})
		if err != nil {
			return nil, err
		}
		defer h.Close()
		return firewall.NewReader(h).Read(ctx)
	}
}

// doctorOptions are what the agent would do with these settings.
func doctorOptions(t *tune.Tuner, c config.Config, served []model.Family) tune.DoctorOptions {
	o := tune.DoctorOptions{
		IPVS: c.Mode != config.ModeIPTables, IPv6: slices.Contains(served, model.IPv6), StrictARP: c.StrictARP, Running: answers(c.Socket()),
		NodePorts: [2]uint16{c.NodePortRange.First, c.NodePortRange.Last}, Sysctls: tune.RulesSysctls(c.LocalhostNodePorts),
	}
	if o.IPVS {
		o.Sysctls = ipvsSysctls(t, c)
	}
	return o
}

// answers tells whether a process listens at a socket.
func answers(socket string) bool {
	conn, err := net.DialTimeout("unix", socket, time.Second)
	if err != nil {
		return false
	}
	return conn.Close() == nil
}

// ipvsChecks are those of what ipvs mode needs besides rules.
func ipvsChecks(log *zap.Logger, t *tune.Tuner, c config.Config, served []model.Family) []tune.Check {
	checks := []tune.Check{{Name: "device " + link.DefaultName, Fix: t.ModuleFix("dummy"), Run: func(ctx context.Context) error {
		return grade(probeDummy(ctx, log), link.ErrUnsupported)
	}}}
	checks = append(checks, schedulerChecks(t.ModuleFix, c.Scheduler, func(ctx context.Context, name string) error {
		return probeScheduler(ctx, log, name)
	})...)
	checks = append(checks, otherSchedulers(c.Scheduler, func(ctx context.Context, name string) error {
		return probeScheduler(ctx, log, name)
	}))
	checks = append(checks, setChecks(t.ModuleFix, served, revision)...)
	return append(checks, idleChecks(t, c.Timeouts, func() (idleHandle, error) { return vserver.New(log, vserver.Options{}) })...)
}

// softened makes a warning of what is missing where iptables mode takes over then.
func softened(c config.Config, checks []tune.Check) []tune.Check {
	if c.Mode == config.ModeIPVS && c.OnMissing == config.OnMissingFail {
		return checks
	}
	for i, check := range checks {
		checks[i].Run = func(ctx context.Context) error {
			err := check.Run(ctx)
			if tune.IsLacking(err) {
				return tune.Warning(fmt.Errorf("%w; the agent would use iptables mode instead", err))
			}
			return err
		}
	}
	return checks
}

// servedFamilies are those that the agent would serve; all, if that is not known.
func servedFamilies(log *zap.Logger, c config.Config) ([]model.Family, error) {
	all := model.Families()
	r, err := openRules(log, c, nil, nil)
	if err != nil {
		return all[:], err
	}
	return families(r), nil
}

// leftOut says which families the agent would not serve.
func leftOut(served []model.Family) error {
	var errs []error
	for _, f := range model.Families() {
		if !slices.Contains(served, f) {
			errs = append(errs, fmt.Errorf("%s is left out: this node does not have it, or no tools for it", f))
		}
	}
	return errors.Join(errs...)
}

// schedulerChecks try the wanted algorithm, and the one that the agent uses where
// the kernel lacks it: only without that the node cannot serve.
func schedulerChecks(fix func(module string) string, want scheduler.Spec, probe func(ctx context.Context, name string) error) []tune.Check {
	specs := []scheduler.Spec{want}
	if want.Name() != scheduler.Default {
		specs = append(specs, scheduler.MustParse(scheduler.Default))
	}
	checks := make([]tune.Check, 0, len(specs))
	for _, s := range specs {
		checks = append(checks, tune.Check{Name: "ipvs scheduler " + s.Name(), Fix: fix(s.Algorithm().Module), Run: func(ctx context.Context) error {
			err := probe(ctx, s.Name())
			if s.Name() != scheduler.Default && errors.Is(err, vserver.ErrUnsupported) {
				return tune.Warning(fmt.Errorf("%w; the agent would use %s instead", err, scheduler.Default))
			}
			return grade(err, vserver.ErrUnsupported)
		}})
	}
	return checks
}

// otherSchedulers tells which algorithms annotations may ask for besides: what this
// kernel lacks a Service does without.
func otherSchedulers(want scheduler.Spec, probe func(ctx context.Context, name string) error) tune.Check {
	return tune.Check{Name: "other schedulers", Fix: "run as root", Run: func(ctx context.Context) error {
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
				return tune.Warning(err)
			}
		}
		var parts []string
		if len(have) > 0 {
			parts = append(parts, strings.Join(have, " "))
		}
		if len(lack) > 0 {
			parts = append(parts, "not in this kernel: "+strings.Join(lack, " "))
		}
		return tune.Note("%s", strings.Join(parts, "; "))
	}}
}

func probeScheduler(ctx context.Context, log *zap.Logger, name string) error {
	s, err := vserver.New(log, vserver.Options{})
	if err != nil {
		return err
	}
	defer s.Close()
	return s.Probe(ctx, name)
}

// probeDummy makes a device of another name and takes it away again.
func probeDummy(ctx context.Context, log *zap.Logger) error {
	l, err := link.New(log, link.Options{Name: "kube-ipvs-probe"})
	if err != nil {
		return err
	}
	defer l.Close()
	_, err = l.Ensure(ctx)
	return errors.Join(err, l.Remove(ctx))
}

// setChecks ask once for each type of set in each family that is served.
func setChecks(fix func(module string) string, served []model.Family, ask func(context.Context, ipset.Set) error) []tune.Check {
	var checks []tune.Check
	asked := map[string]bool{}
	for _, set := range ipvs.AllSets() {
		name := "sets of type " + string(set.Type)
		switch set.Family {
		case ipset.IPv4, ipset.IPv6: // a set of ports has none
			name += ", " + set.Family.String()
			if !slices.Contains(served, familyOf(set.Family)) {
				continue
			}
		}
		if asked[name] {
			continue
		}
		asked[name] = true
		checks = append(checks, tune.Check{Name: name, Fix: fix("ip_set"), Run: func(ctx context.Context) error {
			return grade(ask(ctx, set), ipset.ErrUnsupported)
		}})
	}
	return checks
}

func familyOf(f ipset.Family) model.Family {
	if f == ipset.IPv6 {
		return model.IPv6
	}
	return model.IPv4
}

// revision fails where the kernel does not have the set's type in its family.
func revision(ctx context.Context, set ipset.Set) error {
	h, err := ipset.New(ipset.Options{})
	if err != nil {
		return err
	}
	defer h.Close()
	_, err = h.Revision(ctx, set.Type, set.Family)
	return err
}

// grade tells what the node cannot do from what went wrong.
func grade(err, unsupported error) error {
	if errors.Is(err, unsupported) {
		return tune.Lacking(err)
	}
	return err
}

// unfit fails when the node cannot carry Services.
func unfit(c config.Config, verdicts []tune.Verdict) error {
	for _, v := range verdicts {
		if v.State != tune.OK && v.State != tune.Warn {
			return fmt.Errorf("this node cannot carry Services in %s mode", c.Mode)
		}
	}
	return nil
}
