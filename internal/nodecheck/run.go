package nodecheck

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/config"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/netfilter"
	"github.com/kube-ipvs/kube-ipvs/internal/firewall"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nftables"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/tune"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// Run loads the modules that the mode needs, and returns one verdict for each check.
func Run(ctx context.Context, c config.Config) []tune.Verdict {
	t := tune.New(zap.NewNop(), tune.Options{RunDir: c.RunDir})
	if c.Mode != config.ModeIPTables {
		t.LoadModules(ctx, Modules(t, c)...)
	}
	return tune.RunChecks(ctx, checks(t, c))
}

// Unfit returns an error if the node cannot carry Services.
func Unfit(c config.Config, verdicts []tune.Verdict) error {
	for _, v := range verdicts {
		if v.State != tune.OK && v.State != tune.Warn {
			return fmt.Errorf("this node cannot carry Services in %s mode", c.Mode)
		}
	}
	return nil
}

// checks returns all checks for the families that the agent would serve.
func checks(t *tune.Tuner, c config.Config) []tune.Check {
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
	read := readOnce(log, t, c)
	if c.Mode != config.ModeIPTables {
		checks = append(checks, ownerChecks(read)...)
	}
	return append(checks, firewallCheck(c, readFilters(log), frontendsOf(c, read)))
}

// readFilters returns a reader of the filters of all programs.
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

// doctorOptions says what the agent would do with these settings.
func doctorOptions(t *tune.Tuner, c config.Config, served []model.Family) tune.DoctorOptions {
	o := tune.DoctorOptions{
		IPVS: c.Mode != config.ModeIPTables, IPv6: slices.Contains(served, model.IPv6), StrictARP: c.StrictARP, Running: answers(c.Socket()),
		NodePorts: [2]uint16{c.NodePortRange.First, c.NodePortRange.Last}, Sysctls: tune.RulesSysctls(c.LocalhostNodePorts),
	}
	if o.IPVS {
		o.Sysctls = IPVSSysctls(t, c)
	}
	return o
}

// answers reports whether a process listens at a socket.
func answers(socket string) bool {
	conn, err := net.DialTimeout("unix", socket, time.Second)
	if err != nil {
		return false
	}
	return conn.Close() == nil
}

// servedFamilies returns the families that the agent would serve; both with an error.
func servedFamilies(log *zap.Logger, c config.Config) ([]model.Family, error) {
	all := model.Families()
	h, err := rules.New(log, rules.Options{Backend: rules.Backend(c.IPTables), Owned: netfilter.Owned})
	if err != nil {
		return all[:], err
	}
	return h.Families(), nil
}

// leftOut names the families that the agent would not serve.
func leftOut(served []model.Family) error {
	var errs []error
	for _, f := range model.Families() {
		if !slices.Contains(served, f) {
			errs = append(errs, fmt.Errorf("%s is not served: this node does not support it or has no tools for it", f))
		}
	}
	return errors.Join(errs...)
}

// grade marks an error as lacking if the node does not support something.
func grade(err, unsupported error) error {
	if errors.Is(err, unsupported) {
		return tune.Lacking(err)
	}
	return err
}
