package iptables

import (
	"net/netip"
	"slices"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/netfilter"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// This file has the jumps, chains and rules of every node, without those of Services. They
// are those of kube-proxy's iptables mode (pkg/proxy/iptables/proxier.go, v1.37).

// jumps are kube-proxy's, in its order.
var jumps = netfilter.Jumps{
	{Table: "filter", Hook: "INPUT", Target: chainExternal, Match: netfilter.New, Comment: "kubernetes externally-visible service portals"},
	{Table: "filter", Hook: "FORWARD", Target: chainExternal, Match: netfilter.New, Comment: "kubernetes externally-visible service portals"},
	{Table: "filter", Hook: "INPUT", Target: chainNodePorts, Comment: "kubernetes health check service ports"},
	{Table: "filter", Hook: "FORWARD", Target: chainServices, Match: netfilter.New, Comment: "kubernetes service portals"},
	{Table: "filter", Hook: "OUTPUT", Target: chainServices, Match: netfilter.New, Comment: "kubernetes service portals"},
	{Table: "filter", Hook: "FORWARD", Target: chainForward, Comment: "kubernetes forwarding rules"},
	{Table: "filter", Hook: "INPUT", Target: chainFirewall, Match: netfilter.New, Comment: "kubernetes load balancer firewall"},
	{Table: "filter", Hook: "OUTPUT", Target: chainFirewall, Match: netfilter.New, Comment: "kubernetes load balancer firewall"},
	{Table: "filter", Hook: "FORWARD", Target: chainFirewall, Match: netfilter.New, Comment: "kubernetes load balancer firewall"},
	{Table: "nat", Hook: "OUTPUT", Target: chainServices, Comment: "kubernetes service portals"},
	{Table: "nat", Hook: "PREROUTING", Target: chainServices, Comment: "kubernetes service portals"},
	{Table: "nat", Hook: "POSTROUTING", Target: chainPostrouting, Comment: "kubernetes postrouting rules"},
}

// baseChains renders the chains of all Services in one family. For a dispatch chain these are the
// rules after those of the frontends.
func (c Config) baseChains(f model.Family, host model.Host) map[netfilter.ChainKey]netfilter.Chain {
	out := map[netfilter.ChainKey]netfilter.Chain{}
	put := func(table, name string, list ...netfilter.Rule) {
		k := netfilter.Key(f, table, name)
		out[k] = netfilter.NewChain(k.Family, list...)
	}
	for _, k := range netfilter.SharedChains(f) {
		out[k] = netfilter.Chain{}
	}
	put("filter", chainForward, c.forwardRules()...)
	put("nat", chainServices, c.nodePortRules(f, host)...)
	put("nat", chainPostrouting, slices.Concat(c.boundRules(f), c.Masquerade.Rewrite(f))...)
	put("nat", chainMarkMasq, c.Masquerade.MarkRule())
	return out
}

// boundRules give what this machine sends to its endpoints an address that can be answered
// to, while the addresses of Services are its own.
func (c Config) boundRules(f model.Family) []netfilter.Rule {
	if c.Bound == nil || !c.Bound() {
		return nil
	}
	return []netfilter.Rule{netfilter.If(netfilter.DNATed, netfilter.Local(netfilter.Src)).Then(netfilter.SNAT{Random: c.Masquerade.Random(f)})}
}

// forwardRules let through what is on its way.
func (c Config) forwardRules() []netfilter.Rule {
	var list []netfilter.Rule
	if c.DropInvalid {
		list = append(list, netfilter.If(netfilter.Invalid).Then(netfilter.Drop))
	}
	return append(list,
		netfilter.If(netfilter.Comment("kubernetes forwarding rules"), c.Masquerade.Marked()).Then(netfilter.Accept),
		netfilter.If(netfilter.Comment("kubernetes forwarding conntrack rule"), netfilter.Related|netfilter.Established).Then(netfilter.Accept),
	)
}

const nodePortComment = netfilter.Comment("kubernetes service nodeports; NOTE: this must be the last rule in this chain")

// loopback has the loopback addresses of each family.
var loopback = map[model.Family]netip.Prefix{model.IPv4: netip.MustParsePrefix("127.0.0.0/8"), model.IPv6: netip.MustParsePrefix("::1/128")}

// nodePortRules say where NodePorts answer. On loopback they answer only this machine: with
// route_localnet packets of a neighbour reach loopback addresses, too, but their source is not an
// address of this machine.
func (c Config) nodePortRules(f model.Family, host model.Host) []netfilter.Rule {
	var list []netfilter.Rule
	if f == model.IPv4 && c.localhost() {
		list = append(list, netfilter.If(netfilter.Destination(loopback[f]), nodePortComment, netfilter.Local(netfilter.Src)).
			Then(netfilter.JumpTo(chainNodePorts)))
	}
	if c.Everywhere != nil && c.Everywhere(f) {
		elsewhere := netfilter.Not{Match: netfilter.Destination(loopback[f])}
		return append(list, netfilter.If(elsewhere, nodePortComment, netfilter.Local(netfilter.Dst)).Then(netfilter.JumpTo(chainNodePorts)))
	}
	for _, a := range host.NodePorts {
		if model.FamilyOf(a) == f && !a.IsLoopback() {
			list = append(list, netfilter.If(netfilter.DestinationIP(a), nodePortComment).Then(netfilter.JumpTo(chainNodePorts)))
		}
	}
	return list
}

const localnetComment = netfilter.Comment("block incoming localnet connections")

// baseEntries are the rules of dispatch chains that belong to no frontend: the only one that may route
// to loopback with route_localnet is this machine alone.
func (c Config) baseEntries(f model.Family) []entry {
	if f != model.IPv4 {
		return nil
	}
	k := netfilter.Filter(f, chainFirewall)
	rule := netfilter.If(
		netfilter.Not{Match: netfilter.Source(loopback[f])}, netfilter.Destination(loopback[f]), localnetComment,
		netfilter.Not{Match: netfilter.Related | netfilter.Established | netfilter.DNATed},
	).Then(netfilter.Drop)
	return []entry{{k, netfilter.NewLine(k.Family, rule)}}
}
