package wiring

import (
	"net/netip"
	"slices"

	"github.com/kube-ipvs/kube-ipvs/internal/agent"
	"github.com/kube-ipvs/kube-ipvs/internal/config"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/plan"
)

// CompilerFor returns the constructor of compilers. Each compiler is for one state of the host.
func CompilerFor(now Settings, families []model.Family) func(model.Host) agent.Compiler {
	return func(h model.Host) agent.Compiler { return plan.New(planOptions(now(), families, h)) }
}

// AffectsFor returns a function that reports, for two states of the host, which Services a change
// from one to the other affects.
func AffectsFor(now Settings, families []model.Family) func(was, is model.Host) func(*model.Service, []*model.Slice) bool {
	return func(was, is model.Host) func(*model.Service, []*model.Slice) bool {
		old, opts := planOptions(now(), families, was), planOptions(now(), families, is)
		return func(s *model.Service, behind []*model.Slice) bool { return opts.Affects(old, s, behind) }
	}
}

// NodePortsFor returns the selector of the addresses on which NodePorts answer.
func NodePortsFor(now Settings) func(model.Host) []netip.Addr {
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

// relayed returns the loopback addresses on which a process serves NodePorts: all that are selected,
// but the one that the rules of iptables mode serve.
func relayed(c config.Config, families []model.Family) []netip.Addr {
	byRules := c.Mode == config.ModeIPTables && c.LocalhostNodePorts
	return slices.DeleteFunc(plan.NodePortSelection(c.NodePorts).Relayed(families), func(a netip.Addr) bool { return byRules && a.Is4() })
}

// planOptions returns all that plans depend on, for a state of the host.
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
		Relayed: relayed(c, families),
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
