package chains

import (
	"net/netip"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/sets"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/netfilter"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// This file has the rules of the nat table. They decide which packets get the node's source
// address, as in kube-proxy's ipvs mode, and which are redirected to another frontend. Only the
// first packet of a connection traverses the table.

func (c Config) natRules(w ruleWriter, node model.Node) {
	loopback := netfilter.Source(netip.MustParsePrefix("127.0.0.0/8"))
	if w.family == model.IPv6 {
		loopback = netfilter.SourceIP(netip.IPv6Loopback())
	}
	// Packets to our frontends are ACCEPTed, so that no later rule, such as one of a
	// plug-in with host ports, rewrites them. kube-proxy tests with physdev where packets
	// to external IPs come from; that match enables bridge netfilter for the whole
	// machine, and the sets are enough.
	list := []netfilter.Rule{
		netfilter.If(loopback).Then(netfilter.Return),
		netfilter.If(w.commented(sets.Detour, dstPort)).Then(netfilter.JumpTo(chainDetour)),
		netfilter.If(w.commented(sets.LoadBalancer, dstPort)).Then(netfilter.JumpTo(chainLoadBalancer)),
		c.masqueradeClusterIP(w, node),
	}
	w.chain("nat", chainServices, append(append(list, masqueradeOwn(w)...),
		netfilter.If(w.in(sets.ClusterIP, dstPort)).Then(netfilter.Accept), // most come for one, and no other set has its entries
		netfilter.If(w.commented(sets.ExternalIP, dstPort)).Then(netfilter.JumpTo(chainMarkMasq)),
		netfilter.If(w.commented(sets.ExternalIP, dstPort)).Then(netfilter.Accept),
		netfilter.If(w.commented(sets.ExternalIPLocal, dstPort)).Then(netfilter.Accept),
		netfilter.If(w.in(sets.LoadBalancer, dstPort)).Then(netfilter.Accept), // before NodePorts: it may be a node's address
		netfilter.If(w.commented(sets.NodePortIPs, dst)).Then(netfilter.JumpTo(chainNodePort)),
	)...)
	w.chain("nat", chainLoadBalancer,
		netfilter.If(w.commented(sets.LoadBalancerLocal, dstPort)).Then(netfilter.Return),
		netfilter.Always(netfilter.JumpTo(chainMarkMasq)),
	)
	w.chain("nat", chainNodePort, nodePortRules(w)...)
	w.chain("nat", chainMarkMasq, c.Masquerade.MarkRule())
}

// nodePortRules mark what comes for a NodePort, but for those with a Local policy.
func nodePortRules(w ruleWriter) (list []netfilter.Rule) {
	for _, p := range []model.Protocol{model.TCP, model.UDP, model.SCTP} {
		names, by := sets.NodePorts[p], dst
		if p == model.SCTP {
			by = dstPort
		}
		list = append(list,
			netfilter.If(netfilter.Protocol(p), w.commented(names[1], by)).Then(netfilter.Return),
			netfilter.If(netfilter.Protocol(p), w.commented(names[0], by)).Then(netfilter.JumpTo(chainMarkMasq)),
		)
	}
	return list
}

// masqueradeClusterIP returns the rule that marks packets to be masqueraded, as kube-proxy does. With
// --masquerade-all these are all packets, else those not from a local pod. Without a way to detect local
// pods they are those of this host, whose source is a cluster IP.
func (c Config) masqueradeClusterIP(w ruleWriter, node model.Node) netfilter.Rule {
	conditions := netfilter.All{w.commented(sets.ClusterIP, dstPort)}
	if pods := c.Local.Match(w.family, node); !c.MasqueradeAll && pods != nil {
		conditions = netfilter.All{netfilter.Not{Match: pods}, w.commented(sets.ClusterIP, dstPort)}
	} else if !c.MasqueradeAll {
		conditions = netfilter.All{w.commented(sets.ClusterIP, srcDst)}
	}
	return netfilter.If(conditions...).Then(netfilter.JumpTo(chainMarkMasq))
}

// masqueradeOwn marks packets of this host to cluster IPs of a range that is local as a whole. Over IPv4
// their source is the very address that the host dials, as with bound addresses: net/ipv4/route.c
// (ip_route_output_key_hash_rcu) takes the destination of a local route without a preferred source.
// Over IPv6 only a bound address is preferred (RFC 6724 rule 1). Else the host takes the address most
// like the destination. That may be one of the pods' range, which is not masqueraded, or an external IP,
// which other nodes have, too.
func masqueradeOwn(w ruleWriter) []netfilter.Rule {
	if w.family != model.IPv6 || len(w.ranges) == 0 {
		return nil
	}
	return []netfilter.Rule{netfilter.If(netfilter.Local(netfilter.Src), w.commented(sets.ClusterIP, dstPort)).Then(netfilter.JumpTo(chainMarkMasq))}
}

// postrouting rewrites the source of what was marked, and of a pod that reaches
// itself.
func (c Config) postrouting(w ruleWriter, takeover bool) {
	var hairpin []netfilter.Rule
	if takeover {
		hairpin = append(hairpin, c.masqueradeVIPs(w))
	}
	for _, p := range []model.Protocol{model.TCP, model.UDP, model.SCTP} {
		hairpin = append(hairpin, netfilter.If(netfilter.Protocol(p), w.commented(sets.LoopBack, dstPortSrc)).
			Then(netfilter.SNAT{Ports: c.Masquerade.SourcePorts()}))
	}
	w.chain("nat", chainPostrouting, append(hairpin, c.Masquerade.Rewrite(w.family)...)...)
}

// masqueradeVIPs is a rule for the time of a takeover. The VIPs are bound by then, so the host dials
// them from themselves. The rules that still carry Services send such packets to a pod, which may be
// on another node: from there no answer to a VIP comes back.
func (c Config) masqueradeVIPs(w ruleWriter) netfilter.Rule {
	return netfilter.If(w.in(sets.IPVSIPs, src), netfilter.Local(netfilter.Src)).Then(netfilter.SNAT{Random: c.Masquerade.Random(w.family)})
}

// detourRules redirect clients of this node to the cluster IP, as iptables mode does: pods
// keep their address, the host gets the node's. A client outside of the source ranges is
// not redirected and is refused later; outputRules stop the host before.
func (c Config) detourRules(w ruleWriter, node model.Node) {
	host, sctp := netfilter.Local(netfilter.Src), netfilter.SCTP
	list := []netfilter.Rule{netfilter.If(outOfRange(w)).Then(netfilter.Return)}
	if pods := c.Local.Match(w.family, node); pods != nil {
		list = append(list,
			netfilter.If(pods, sctp).Then(netfilter.JumpTo(chainDetourSCTP)),
			netfilter.If(pods).Then(netfilter.JumpTo(chainDetourTo)),
		)
	}
	list = append(list,
		netfilter.If(host).Then(netfilter.JumpTo(chainMarkMasq)),
		netfilter.If(sctp, host).Then(netfilter.JumpTo(chainDetourSCTP)),
		netfilter.If(host).Then(netfilter.JumpTo(chainDetourTo)),
	)
	w.chain("nat", chainDetour, list...)
}

// outOfRange matches clients that are not in the source ranges of a load balancer.
func outOfRange(w ruleWriter) netfilter.Match {
	return netfilter.All{
		w.in(sets.LoadBalancerFW, dstPort),
		w.notIn(sets.SourceCIDR, dstPortSrc),
		w.notIn(sets.SourceIP, dstPortSrc),
	}
}

// detourRule takes one frontend's clients to another address and port.
func detourRule(from model.FrontendKey, to netip.AddrPort) netfilter.Rule {
	p := netfilter.Protocol(from.Protocol)
	return netfilter.If(netfilter.DestinationIP(from.Addr), p, netfilter.DestinationPort{Protocol: p, Port: from.Port}).Then(netfilter.DNAT(to))
}
