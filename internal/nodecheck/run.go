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
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/sets"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/netfilter"
	"github.com/kube-ipvs/kube-ipvs/internal/diagnosis"
	"github.com/kube-ipvs/kube-ipvs/internal/firewall"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/link"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/modules"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nft"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nftables"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/procfs"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/sysctl"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/nodecheck/host"
	"github.com/kube-ipvs/kube-ipvs/ipset"
)

// Run loads the modules that the mode needs, and returns one verdict for each check.
func Run(ctx context.Context, c config.Config) []diagnosis.Verdict {
	log, files := zap.NewNop(), procfs.Files{}
	loader := modules.New(log, modules.Options{Files: files})
	if c.Mode != config.ModeIPTables {
		loader.Load(ctx, Modules(files, c)...)
	}
	n := host.New(files, c.RunDir, sysctl.New(log, sysctl.Options{Files: files, RunDir: c.RunDir}), loader)
	return diagnosis.Run(ctx, checks(n, files, c))
}

// Unfit returns an error if the node cannot carry Services.
func Unfit(c config.Config, verdicts []diagnosis.Verdict) error {
	for _, v := range verdicts {
		if v.State != diagnosis.OK && v.State != diagnosis.Warn {
			return fmt.Errorf("this node cannot carry Services in %s mode", c.Mode)
		}
	}
	return nil
}

// checks returns all checks for the families that the agent would serve.
func checks(n *host.Node, files procfs.Files, c config.Config) []diagnosis.Check {
	log := zap.NewNop()
	served, setMatch, err := servedFamilies(log, c)
	inNFTables := rulesInNFTables(c, err, func() error { return errors.Join(firstSet(context.Background()), setMatch) })
	checks := []diagnosis.Check{
		{Name: "iptables", Fix: "install iptables and ip6tables; for IPv6, switch it on in the kernel", Run: func(context.Context) error {
			return errors.Join(grade(err, rules.ErrUnsupported), diagnosis.Warning(leftOut(served)))
		}},
	}
	if inNFTables {
		served = rules.UsableFamilies()
		checks = []diagnosis.Check{{Name: "nftables", Fix: n.ModuleFix("nf_tables"), Run: func(ctx context.Context) error {
			return errors.Join(grade(tryTables(ctx, log), nft.ErrUnsupported), diagnosis.Warning(leftOut(served)))
		}}}
		c.Rules = config.RulesNFTables
	}
	if c.Mode != config.ModeIPTables {
		checks = append(checks, softened(c, append(ipvsChecks(log, n, c, served), setMatchCheck(n.ModuleFix, c, setMatch)...))...)
	}
	checks = append(checks, backendCheck(func(ctx context.Context) map[rules.Backend]int { return rules.CountRules(ctx, rules.Options{}) }))
	checks = append(checks, n.Checks(host.CheckOptions{IPv6: slices.Contains(served, model.IPv6), NoIPVS: c.Mode == config.ModeIPTables})...)
	checks = append(checks, n.Hazards(hazardOptions(files, c, served))...)
	read := readOnce(log, n, c)
	if c.Mode != config.ModeIPTables {
		checks = append(checks, ownerChecks(read)...)
		checks = append(checks, pickupCheck(files, agentFrontends(c)))
	}
	if c.AnnounceTable != 0 {
		checks = append(checks, announceCheck(c.AnnounceTable, rulesTo))
	}
	return append(checks, firewallCheck(c, readFilters(log), frontendsOf(c, read)))
}

// rulesInNFTables reports whether ipvs mode would keep its rules in nftables, given why there is no
// iptables. firstSet asks for a set of ipset, and for the match of sets.
func rulesInNFTables(c config.Config, noIPTables error, firstSet func() error) bool {
	switch {
	case c.Mode == config.ModeIPTables || c.Rules == config.RulesIPTables:
		return false
	case c.Rules == config.RulesNFTables:
		return true
	}
	missing := firstSet()
	return errors.Is(noIPTables, rules.ErrUnsupported) || errors.Is(missing, ipset.ErrUnsupported) || errors.Is(missing, rules.ErrUnsupported)
}

// firstSet asks for the type of a set that ipvs mode needs.
func firstSet(ctx context.Context) error { return revision(ctx, sets.All()[0]) }

// tryTables tries whether the kernel takes our tables of nftables, and changes nothing.
func tryTables(ctx context.Context, log *zap.Logger) error {
	h, err := nft.New(log, nft.Options{})
	if err != nil {
		return err
	}
	defer h.Close()
	var trial nft.Pass
	for _, f := range nft.Families() {
		trial.Tables = append(trial.Tables, nft.TableChange{Op: nft.Add, Family: f})
	}
	return h.Check(ctx, trial).Err()
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

// hazardOptions lists what the agent would do with these settings.
func hazardOptions(files procfs.Files, c config.Config, served []model.Family) host.HazardOptions {
	o := host.HazardOptions{
		IPVS: c.Mode != config.ModeIPTables, Device: link.DefaultName, IPv6: slices.Contains(served, model.IPv6), StrictARP: c.StrictARP, Running: answers(c.Socket()),
		NodePorts: [2]uint16{c.NodePortRange.First, c.NodePortRange.Last}, Sysctls: sysctl.RulesSysctls(c.LocalhostNodePorts),
	}
	if o.IPVS {
		o.Sysctls = IPVSSysctls(files, c)
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

// servedFamilies returns the families that the agent would serve, and why rules of iptables cannot refer
// to sets there; both families with an error.
func servedFamilies(log *zap.Logger, c config.Config) (served []model.Family, setMatch, err error) {
	all := model.Families()
	o := rules.Options{Backend: rules.Backend(c.IPTables), Owned: netfilter.Owned}
	tables, err := nftables.New(log, nftables.Options{})
	if err == nil {
		defer tables.Close()
		o.Match = netfilter.MatchFinder(tables)
	}
	h, err := rules.New(log, o)
	if err != nil {
		return all[:], nil, err
	}
	return h.Families(), h.FindMatch(context.Background(), netfilter.SetMatch), nil
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
