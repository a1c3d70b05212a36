package chains

import (
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/sets"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/netfilter"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// This file is the filter table, and the part of mangle that replaces it for packets of the host
// itself.

// filterRules accept forwarded packets of Services, with kube-proxy's rules of KUBE-FORWARD.
func (c Config) filterRules(w ruleWriter) {
	w.chain("filter", chainForward,
		netfilter.If(netfilter.Comment("kubernetes forwarding rules"), c.Masquerade.Marked()).Then(netfilter.Accept),
		netfilter.If(netfilter.Comment("kubernetes forwarding conntrack rule"), netfilter.Related|netfilter.Established).Then(netfilter.Accept),
	)
	w.chain("filter", chainNodePort, netfilter.If(w.commented(sets.HealthCheck, dst)).Then(netfilter.Accept))
	w.chain("filter", chainFirewall, netfilter.If(w.commented(sets.LoadBalancerFW, dstPort)).Then(netfilter.JumpTo(chainSourceRanges)))
	w.chain("filter", chainSourceRanges,
		netfilter.If(w.commented(sets.SourceCIDR, dstPortSrc)).Then(netfilter.Return),
		netfilter.If(w.commented(sets.SourceIP, dstPortSrc)).Then(netfilter.Return),
		netfilter.Always(netfilter.Drop),
	)
}

// accessRules keep the host's daemons off the service addresses. These answer on service
// ports and to ping; the rules refuse all other new packets. On INPUT a packet still has
// the service address, because IPVS takes it later in that hook.
//
// Every packet to a Service comes by here, and only new connections are ever refused: others go
// by at once. That is one look at the packet, and a set is a hash and a search. The rules that
// match most new packets come first. Rules that refuse packets name these explicitly, so their
// place does not matter.
func (c Config) accessRules(w ruleWriter) {
	ping := netfilter.All{netfilter.ICMP, netfilter.EchoRequest}
	if w.family == model.IPv6 {
		ping = netfilter.All{netfilter.ICMPv6, netfilter.EchoRequestV6}
	}
	list := []netfilter.Rule{
		netfilter.If(netfilter.Not{Match: netfilter.New}).Then(netfilter.Return),
		netfilter.If(netfilter.New, w.commented(sets.NoLocal, dstPort)).Then(netfilter.Drop),
		netfilter.If(netfilter.New, w.commented(sets.Hold, dstPort)).Then(netfilter.Drop),
		netfilter.If(w.in(sets.ClusterIP, dstPort)).Then(netfilter.Return),
		netfilter.If(w.in(sets.LoadBalancer, dstPort)).Then(netfilter.Return),
		netfilter.If(w.in(sets.ExternalIP, dstPort)).Then(netfilter.Return),
		netfilter.If(w.in(sets.ExternalIPLocal, dstPort)).Then(netfilter.Return),
	}
	// An address of a range that no Service has answers to nothing, ping included. The rules
	// that follow are for addresses that are marked as ours.
	for _, r := range w.ranges {
		list = append(list, netfilter.If(netfilter.Destination(r), netfilter.New, w.notIn(sets.IPVSIPs, dst)).Then(netfilter.Reject{}))
	}
	w.chain("filter", chainFilter, append(list,
		netfilter.If(w.in(sets.HealthCheck, dst)).Then(netfilter.Return),
		netfilter.If(netfilter.DNATed).Then(netfilter.Return), // a detour, which no client dials
		netfilter.If(ping).Then(netfilter.Return),
		netfilter.If(netfilter.New, w.in(sets.IPVSIPs, dst)).Then(netfilter.Reject{}),
	)...)
	// A policy of DROP on INPUT is about the host's daemons, and Services go elsewhere. This rule
	// comes last, but before a rule that refuses everything (rules.LastPlace): rules of network
	// policies come before it.
	w.chain("filter", chainAccept,
		netfilter.If(w.in(sets.ClusterIP, dstPort)).Then(netfilter.Accept),
		netfilter.If(w.in(sets.LoadBalancer, dstPort)).Then(netfilter.Accept),
		netfilter.If(w.in(sets.ExternalIP, dstPort)).Then(netfilter.Accept),
		netfilter.If(w.in(sets.ExternalIPLocal, dstPort)).Then(netfilter.Accept),
		netfilter.If(netfilter.DNATed, w.in(sets.IPVSIPs, dst)).Then(netfilter.Accept),
		netfilter.If(netfilter.TCP, w.in(sets.NodePortIPs, dst), w.in(sets.NodePortTCP, dst)).Then(netfilter.Accept),
		netfilter.If(netfilter.UDP, w.in(sets.NodePortIPs, dst), w.in(sets.NodePortUDP, dst)).Then(netfilter.Accept),
		netfilter.If(netfilter.SCTP, w.in(sets.NodePortSCTP, dstPort)).Then(netfilter.Accept),
	)
}

// outputRules are for what the host sends: IPVS takes that in OUTPUT, before the
// filter table sees it, but after mangle has. kube-proxy has a rule for each load balancer
// in filter KUBE-IPVS-OUT-FILTER instead, which needs xt_ipvs. That chain is kept empty, so
// that no rule of kube-proxy stays in it.
//
// The host dials a bound address from that very address, which proves nothing about the
// node: the set of source IPs has it where a range holds the node (OwnNode).
//
// Packets that IPVS forwards pass here, too, on their way out. One of an established connection meets one
// rule, which matches its state and one set.
func outputRules(w ruleWriter) {
	const going = netfilter.Related | netfilter.Established
	w.chain("filter", chainOutFilter)
	w.chain("mangle", chainOutFilter,
		netfilter.If(going, w.notIn(sets.LoadBalancerFW, dstPort)).Then(netfilter.Return),
		netfilter.If(netfilter.New, w.in(sets.NoLocal, dstPort), w.in(sets.ClusterIP, dstPort)).Then(netfilter.Drop),
		netfilter.If(netfilter.New, w.in(sets.Hold, dstPort), w.in(sets.ClusterIP, dstPort)).Then(netfilter.Drop),
		netfilter.If(netfilter.Not{Match: going}, w.commented(sets.DetourEnd, dstPort)).Then(netfilter.Drop), // not taken there, but dialled
		netfilter.If(w.notIn(sets.LoadBalancerFW, dstPort)).Then(netfilter.Return),
		netfilter.If(w.in(sets.IPVSIPs, src), w.notIn(sets.SourceIP, dstPortSrc)).Then(netfilter.Drop),
		netfilter.If(w.notIn(sets.SourceCIDR, dstPortSrc), w.notIn(sets.SourceIP, dstPortSrc)).Then(netfilter.Drop),
	)
}
