package ipvs

import (
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// This file is the filter table, and the part of mangle that stands in for it
// where the host itself is the client.

// filterRules accept forwarded packets of Services, with kube-proxy's rules of KUBE-FORWARD.
func (c Config) filterRules(w ruleWriter) {
	w.chain("filter", chainForward,
		join(comment("kubernetes forwarding rules"), c.Masquerade.Marked(), "-j ACCEPT"),
		join(comment("kubernetes forwarding conntrack rule"), "-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT"),
	)
	w.chain("filter", chainNodePort, join(w.commented(setHealthCheck, "dst"), "-j ACCEPT"))
	w.chain("filter", chainFirewall, join(w.commented(setLoadBalancerFW, "dst,dst"), "-j", chainSourceRanges))
	w.chain("filter", chainSourceRanges,
		join(w.commented(setSourceCIDR, "dst,dst,src"), "-j RETURN"),
		join(w.commented(setSourceIP, "dst,dst,src"), "-j RETURN"),
		"-j DROP",
	)
}

// accessRules keep the host's daemons off the service addresses. These answer on service
// ports and to ping; the rules refuse all other new packets. On INPUT a packet still has
// the service address, because IPVS takes it later in that hook.
//
// Every packet to a Service comes by here, and only what is new is ever refused: what is not
// goes by at once. That is one look at the packet, and a set is a hash and a search. Of what
// is new, what most of it matches stands first. Rules that refuse say what, wherever they stand.
func (c Config) accessRules(w ruleWriter) {
	ping, refuse := "-p icmp -m icmp --icmp-type 8 -j RETURN", unreachable(w.family)
	if w.family == model.IPv6 {
		ping = "-p ipv6-icmp -m icmp6 --icmpv6-type 128 -j RETURN"
	}
	lines := []string{
		"-m conntrack ! --ctstate NEW -j RETURN",
		join("-m conntrack --ctstate NEW", w.commented(setNoLocal, "dst,dst"), "-j DROP"),
		join("-m conntrack --ctstate NEW", w.commented(setHold, "dst,dst"), "-j DROP"),
		w.matchSet(setClusterIP, "dst,dst") + " -j RETURN",
		w.matchSet(setLoadBalancer, "dst,dst") + " -j RETURN",
		w.matchSet(setExternalIP, "dst,dst") + " -j RETURN",
		w.matchSet(setExternalIPLocal, "dst,dst") + " -j RETURN",
	}
	// An address that no Service has is nobody's, and answers to nothing, ping included.
	// The rules that follow are for those that are marked as ours.
	for _, r := range w.ranges {
		lines = append(lines, join("-d", r.String(), "-m conntrack --ctstate NEW", w.notInSet(setIPVSIPs, "dst"), "-j REJECT --reject-with "+refuse))
	}
	w.chain("filter", chainFilter, append(lines,
		w.matchSet(setHealthCheck, "dst")+" -j RETURN",
		"-m conntrack --ctstate DNAT -j RETURN", // a detour, which nobody can dial
		ping,
		join("-m conntrack --ctstate NEW", w.matchSet(setIPVSIPs, "dst"), "-j REJECT --reject-with "+refuse),
	)...)
	// A policy of DROP on INPUT is about the host's daemons, and Services go elsewhere.
	// This stands last, but before a rule that refuses everything (rules.LastPlace): rules
	// of network policies come before.
	w.chain("filter", chainAccept,
		w.matchSet(setClusterIP, "dst,dst")+" -j ACCEPT",
		w.matchSet(setLoadBalancer, "dst,dst")+" -j ACCEPT",
		w.matchSet(setExternalIP, "dst,dst")+" -j ACCEPT",
		w.matchSet(setExternalIPLocal, "dst,dst")+" -j ACCEPT",
		join("-m conntrack --ctstate DNAT", w.matchSet(setIPVSIPs, "dst"), "-j ACCEPT"),
		join("-p tcp", w.matchSet(setNodePortIPs, "dst"), w.matchSet(setNodePortTCP, "dst"), "-j ACCEPT"),
		join("-p udp", w.matchSet(setNodePortIPs, "dst"), w.matchSet(setNodePortUDP, "dst"), "-j ACCEPT"),
		join("-p sctp", w.matchSet(setNodePortSCTP, "dst,dst"), "-j ACCEPT"),
	)
}

// unreachable is what REJECT answers with in a family.
func unreachable(f model.Family) string {
	return pick(f == model.IPv6, "icmp6-port-unreachable", "icmp-port-unreachable")
}

// outputRules are for what the host sends: IPVS takes that in OUTPUT, before the
// filter table sees it, but after mangle has. kube-proxy has a rule for each load balancer
// in filter KUBE-IPVS-OUT-FILTER instead, which needs xt_ipvs. That chain is kept empty, so
// that no rule of kube-proxy stays in it.
//
// The host dials a bound address from that very address, which says nothing of the
// node: the set of source IPs has it where a range holds the node (OwnNode).
//
// What IPVS forwards passes here, too, on its way out: a packet of a connection that
// is there meets one rule, which asks for its state and for one set.
func outputRules(w ruleWriter) {
	w.chain("filter", chainOutFilter)
	w.chain("mangle", chainOutFilter,
		join("-m conntrack --ctstate RELATED,ESTABLISHED", w.notInSet(setLoadBalancerFW, "dst,dst"), "-j RETURN"),
		join("-m conntrack --ctstate NEW", w.matchSet(setNoLocal, "dst,dst"), w.matchSet(setClusterIP, "dst,dst"), "-j DROP"),
		join("-m conntrack --ctstate NEW", w.matchSet(setHold, "dst,dst"), w.matchSet(setClusterIP, "dst,dst"), "-j DROP"),
		join("-m conntrack ! --ctstate RELATED,ESTABLISHED", w.commented(setDetourEnd, "dst,dst"), "-j DROP"), // not taken there, but dialled
		join(w.notInSet(setLoadBalancerFW, "dst,dst"), "-j RETURN"),
		join(w.matchSet(setIPVSIPs, "src"), w.notInSet(setSourceIP, "dst,dst,src"), "-j DROP"),
		join(w.notInSet(setSourceCIDR, "dst,dst,src"), w.notInSet(setSourceIP, "dst,dst,src"), "-j DROP"),
	)
}
