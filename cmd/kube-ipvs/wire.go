package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"sync/atomic"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/agent"
	"github.com/kube-ipvs/kube-ipvs/internal/config"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/iptables"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/netfilter"
	"github.com/kube-ipvs/kube-ipvs/internal/healthcheck"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/conntrack"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/link"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nftables"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/tune"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/nodecheck"
	"github.com/kube-ipvs/kube-ipvs/internal/plan"
	"github.com/kube-ipvs/kube-ipvs/internal/rulewatch"
	"github.com/kube-ipvs/kube-ipvs/ipset"
)

// This file is the only place where concrete rooms meet.

// kernel holds the handles of the network namespace the process runs in. For run
// servers and sets alone may be nil: iptables mode needs none.
type kernel struct {
	servers *vserver.Handle
	sets    *ipset.Handle
	rules   *rules.Handle
	own     *rulewatch.TrackedRules // rules, for who writes
	bound   atomic.Bool             // in iptables mode: the device of ipvs mode is there
	link    *link.Handle
	tuner   *tune.Tuner
	flows   *conntrack.Handle // nil where the kernel lets nobody look: stale flows time out
	tables  *nftables.Handle
	idle    atomic.Pointer[idleKeeper] // of servers, and nil without
	calls   calls
	// sysctlRefused is told why nothing may be carried, nil where nobody is; unset is what it was told last,
	// the loop's own.
	sysctlRefused func(why error)
	unset         string
}

// openBase opens what every mode needs. A kernel that lacks something is told with the
// remedy.
func openBase(ctx context.Context, log *zap.Logger, c config.Config) (*kernel, error) {
	k := &kernel{tuner: tune.New(log, tune.Options{RunDir: c.RunDir})}
	k.tuner.LoadModules(ctx, "nf_conntrack", "nf_conntrack_netlink") // what is missing shows by use, below
	var err error
	if k.link, err = link.New(log, link.Options{Called: k.calls.of("link"), DetachMark: link.DetachMark(c.MasqueradeBit)}); err != nil {
		return nil, k.close(err)
	}
	there, err := k.link.There(ctx)
	if err != nil {
		return nil, k.close(err)
	}
	k.bound.Store(there)
	if k.tables, err = nftables.New(log, nftables.Options{Called: k.calls.of("nftables")}); err != nil {
		return nil, k.close(err)
	}
	if k.rules, err = openRules(log, c, k.tables, k.calls.of("rules")); err != nil {
		return nil, k.close(denied(err, "CAP_NET_ADMIN and CAP_NET_RAW"))
	}
	k.own = rulewatch.Track(k.rules, k.tables)
	if k.flows, err = conntrack.New(log, conntrack.Options{Called: k.calls.of("conntrack")}); err != nil {
		log.Warn("stale flows of UDP and SCTP stay until they time out", zap.Error(k.lacking("nf_conntrack_netlink", err)))
	}
	return k, nil
}

// openIPVS loads the modules of IPVS and sets and opens them. It leaves nothing open that
// is of no use alone.
func (k *kernel) openIPVS(ctx context.Context, log *zap.Logger, c config.Config) (err error) {
	k.tuner.LoadModules(ctx, nodecheck.Modules(k.tuner, c)...)
	defer func() {
		if err != nil {
			err = k.closeIPVS(err)
		}
	}()
	if k.servers, err = vserver.New(log, vserver.Options{Called: k.calls.of("vserver")}); err != nil {
		return k.lacking("ip_vs", err)
	}
	if k.sets, err = ipset.Open(ctx, ipset.Options{Called: k.calls.of("ipset")}); err != nil {
		return k.lacking("ip_set", err)
	}
	if there, asked := k.link.There(ctx); asked != nil {
		return asked
	} else if !there {
		if err = link.Probe(ctx, log); err != nil {
			return k.lacking("dummy", err)
		}
	}
	k.idle.Store(newIdleKeeper(log, k.servers, k.tuner))
	return nil
}

// closeIPVS gives back what openIPVS opened, and returns err.
func (k *kernel) closeIPVS(err error) error {
	if k.servers != nil {
		k.servers.Close()
	}
	if k.sets != nil {
		err = errors.Join(err, k.sets.Close())
	}
	k.servers, k.sets = nil, nil
	k.idle.Store(nil)
	return err
}

// openRules opens the rules; tables tell whether they have changed, nil for who lists once.
func openRules(log *zap.Logger, c config.Config, tables *nftables.Handle, called called) (*rules.Handle, error) {
	return rules.New(log, rulesOptions(c, tables, called))
}

func rulesOptions(c config.Config, tables *nftables.Handle, called called) rules.Options {
	o := rules.Options{Called: called, Backend: rules.Backend(c.IPTables), Owned: ipvs.OwnedChain}
	if tables != nil {
		o.Generation = func(ctx context.Context) (uint64, error) {
			n, err := tables.Generation(ctx)
			return uint64(n), err
		}
	}
	return o
}

// denied adds to an error what a person can do where the kernel refuses a process.
func denied(err error, capabilities string) error {
	if errors.Is(err, os.ErrPermission) {
		return fmt.Errorf("%w\n  remedy: run as root, or with %s", err, capabilities)
	}
	return err
}

// lacking adds to an error what a person can do about the missing module.
func (k *kernel) lacking(module string, err error) error {
	if errors.Is(err, os.ErrPermission) {
		return denied(err, "CAP_NET_ADMIN")
	}
	if fix := k.tuner.ModuleFix(module); fix != "" {
		return fmt.Errorf("%w\n  remedy: %s", err, fix)
	}
	return err
}

// close gives back what is open and returns err.
func (k *kernel) close(err error) error {
	err = k.closeIPVS(err)
	if k.link != nil {
		k.link.Close()
	}
	if k.flows != nil {
		k.flows.Close()
	}
	if k.tables != nil {
		k.tables.Close()
	}
	return err
}

// families are those that iptables serves on this node, and so the agent.
func families(r *rules.Handle) []model.Family {
	var out []model.Family
	for _, f := range r.Families() {
		out = append(out, model.Family(f))
	}
	return out
}

// newRulesMode joins iptables mode to its handles.
func (k *kernel) newRulesMode(ctx context.Context, log *zap.Logger, now settings, families []model.Family, flows iptables.Flows, both bool) *iptables.Mode {
	mc := rulesConfig(now(), families, k.rules)
	mc.Both, mc.DropInvalid = both, !k.tuner.Liberal(ctx)
	mc.Everywhere = func(f model.Family) bool { return plan.NodePortSelection(now().NodePorts).Everywhere(f) }
	mc.Bound = k.bound.Load
	mc.Loopback = func() bool { return plan.NodePortSelection(now().NodePorts).Loopback() }
	return iptables.New(log, mc, iptables.Deps{
		Rules: k.own, Tables: k.tables, Flows: flows,
		Tune: func(ctx context.Context) error { return k.tuneRules(ctx, mc.Localhost && mc.Loopback()) },
	})
}

// rulesConfig tells iptables mode what the settings and the tools say.
func rulesConfig(c config.Config, families []model.Family, tools *rules.Handle) iptables.Config {
	selected := plan.NodePortSelection(c.NodePorts)
	return iptables.Config{
		Families:      families,
		MasqueradeAll: c.MasqueradeAll,
		Masquerade:    masquerade(c, tools),
		Local:         localPods(c),
		Everywhere:    selected.Everywhere,
		Localhost:     c.LocalhostNodePorts && slices.Contains(families, model.IPv4),
		Loopback:      selected.Loopback,
	}
}

// newMode joins the mode to its handles. Where cleanup found none there is a
// stand-in that holds nothing.
func (k *kernel) newMode(log *zap.Logger, now settings, families []model.Family, flows ipvs.Flows) *ipvs.Mode {
	deps := ipvs.Deps{Servers: noServers{}, Sets: noSets{}, Rules: noRules{}, Links: k.link, Flows: flows}
	deps.Tune = func(ctx context.Context) error { return k.tune(ctx, now()) }
	deps.KeepTuned = func(ctx context.Context) error { return k.keepTuned(ctx, now()) }
	if k.servers != nil {
		deps.Servers = k.servers
	}
	if k.sets != nil {
		deps.Sets = k.sets
	}
	switch {
	case k.own != nil:
		deps.Rules = k.own
	case k.rules != nil:
		deps.Rules = k.rules
	}
	if k.tables != nil {
		deps.Tables = k.tables
	}
	return ipvs.New(log, modeConfig(now(), families, k.rules), deps)
}

// modeConfig tells the mode what the settings and the tools say. Without tools
// it supposes that they are recent.
func modeConfig(c config.Config, families []model.Family, tools *rules.Handle) ipvs.Config {
	return ipvs.Config{
		Node:          c.NodeName,
		Families:      families,
		MasqueradeAll: c.MasqueradeAll,
		Masquerade:    masquerade(c, tools),
		ExcludeCIDRs:  c.ExcludeCIDRs,
		Local:         localPods(c),
		Binding:       ipvs.Binding(c.VIPBinding),
		ServiceCIDRs:  c.ServiceCIDRs,
	}
}

func localPods(c config.Config) netfilter.LocalPods {
	return netfilter.LocalPods{
		Mode:         netfilter.LocalMode(c.DetectLocal.Mode),
		ClusterCIDRs: c.DetectLocal.ClusterCIDRs,
		Interface:    c.DetectLocal.Interface,
	}
}

func masquerade(c config.Config, tools *rules.Handle) netfilter.Masquerade {
	m := netfilter.Masquerade{Bit: c.MasqueradeBit, NodePorts: netfilter.PortRange(c.NodePortRange)}
	if tools != nil {
		m.RandomFully = func(f model.Family) bool { return tools.RandomFully(rules.Family(f)) }
	}
	return m
}

// planOptions are what plans depend on, for what is known of the host.
func planOptions(c config.Config, families []model.Family, h model.Host) plan.Options {
	var routed []netip.Prefix
	if c.VIPBinding != config.VIPBindingAddress {
		routed = c.ServiceCIDRs
	}
	return plan.Options{
		Node: c.NodeName, Zone: h.Node.Zone, Scheduler: c.Scheduler, Host: ownAddress(c, h), Drain: c.Drain,
		IPv4: slices.Contains(families, model.IPv4), IPv6: slices.Contains(families, model.IPv6),
		ExternalIPs: plan.ExternalIPs{Off: !c.AllowExternalIPs, Allowed: c.ExternalIPCIDRs},
		NoBinding:   c.Mode == config.ModeIPTables, NoPolicy: c.Mode == config.ModeIPTables, Routed: routed,
		External: plan.ExternalBinding(c.ExternalBinding), MaxFrontends: c.ServiceFrontends, MaxRanges: c.ServiceRanges, MaxRows: c.ServiceRows,
	}
}

// ownAddress puts the address of --bind-address before those of the Node. As in
// kube-proxy, it is then the primary address of its family.
func ownAddress(c config.Config, h model.Host) model.Host {
	if a := c.BindAddress; a.IsValid() && !a.IsUnspecified() {
		h.Node.Addresses = append([]netip.Addr{a}, h.Node.Addresses...)
	}
	return h
}

// compilerFor makes the compiler for what is known of the host.
func compilerFor(now settings, families []model.Family) func(model.Host) agent.Compiler {
	return func(h model.Host) agent.Compiler { return plan.New(planOptions(now(), families, h)) }
}

// concernsFor makes the question which Services another host concerns.
func concernsFor(now settings, families []model.Family) func(was, is model.Host) func(*model.Service, []*model.Slice) bool {
	return func(was, is model.Host) func(*model.Service, []*model.Slice) bool {
		old, opts := planOptions(now(), families, was), planOptions(now(), families, is)
		return func(s *model.Service, behind []*model.Slice) bool { return opts.Concerns(old, s, behind) }
	}
}

// nodePortsFor selects the addresses on which NodePorts answer.
func nodePortsFor(now settings) func(model.Host) []netip.Addr {
	return func(h model.Host) []netip.Addr {
		c := now()
		selected := plan.NodePortSelection(c.NodePorts)
		out := plan.NodePortAddresses(selected, ownAddress(c, h))
		if c.Mode == config.ModeIPTables && c.LocalhostNodePorts && selected.Loopback() {
			out = plan.WithLoopback(out) // IPVS cannot serve it
		}
		return out
	}
}

// healthPorts opens health-check ports where NodePorts answer. Where that is
// everywhere, one socket stands for all addresses, those to come included.
type healthPorts struct {
	*healthcheck.Servers
	now settings
}

func newHealthPorts(log *zap.Logger, now settings, o healthcheck.Options) healthPorts {
	h := healthPorts{healthcheck.New(log, o), now}
	h.Listen(nil)
	return h
}

// count tells how many sockets are open and how many could not be opened.
func (h healthPorts) count() (open, failed int) {
	for _, s := range h.Status() {
		if s.Listening {
			open++
		} else {
			failed++
		}
	}
	return open, failed
}

// Listen implements agent.Health.
func (h healthPorts) Listen(addrs []netip.Addr) {
	if h.now().NodePorts.All {
		h.Servers.Listen(nil, true)
	} else {
		h.Servers.Listen(addrs, false)
	}
}
