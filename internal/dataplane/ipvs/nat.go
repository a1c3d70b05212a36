package ipvs

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// This file is the nat table: which packets get the node's source address, by the rules of
// kube-proxy's ipvs mode, and which are redirected to another frontend. Only the first
// packet of a connection traverses it.

func (c Config) natRules(w ruleWriter, node model.Node) {
	loopback := "-s 127.0.0.0/8 -j RETURN"
	if w.family == model.IPv6 {
		loopback = "-s ::1/128 -j RETURN"
	}
	// What is one of our frontends is ACCEPTed, so that nobody behind us, such as
	// a plug-in with host ports, rewrites it. kube-proxy asks with physdev where
	// external IPs come from; that match switches bridge netfilter on for the
	// whole machine, and the sets say enough.
	lines := []string{
		loopback,
		join(w.commented(setDetour, "dst,dst"), "-j", chainDetour),
		join(w.commented(setLoadBalancer, "dst,dst"), "-j", chainLoadBalancer),
		c.masqueradeClusterIP(w, node),
	}
	w.chain("nat", chainServices, append(append(lines, masqueradeOwn(w)...),
		w.matchSet(setClusterIP, "dst,dst")+" -j ACCEPT", // most come for one, and no other set has its entries
		join(w.commented(setExternalIP, "dst,dst"), "-j", chainMarkMasq),
		join(w.commented(setExternalIP, "dst,dst"), "-j ACCEPT"),
		join(w.commented(setExternalIPLocal, "dst,dst"), "-j ACCEPT"),
		w.matchSet(setLoadBalancer, "dst,dst")+" -j ACCEPT", // before NodePorts: it may be a node's address
		join(w.commented(setNodePortIPs, "dst"), "-j", chainNodePort),
	)...)
	w.chain("nat", chainLoadBalancer,
		join(w.commented(setLoadBalancerLocal, "dst,dst"), "-j RETURN"),
		"-j "+chainMarkMasq,
	)
	var nodePorts []string
	for _, p := range []model.Protocol{model.TCP, model.UDP, model.SCTP} {
		sets, directions := nodePortSets[p], "dst"
		if p == model.SCTP {
			directions = "dst,dst"
		}
		nodePorts = append(nodePorts,
			join("-p", p.String(), w.commented(sets[1], directions), "-j RETURN"),
			join("-p", p.String(), w.commented(sets[0], directions), "-j", chainMarkMasq),
		)
	}
	w.chain("nat", chainNodePort, nodePorts...)
	w.chain("nat", chainMarkMasq, c.Masquerade.MarkRule())
}

// masqueradeClusterIP returns the rule that marks packets to be masqueraded. As in kube-proxy,
// these are all packets with --masquerade-all, else those not from a local pod, else,
// without a way to detect local pods, those of this host, whose source is a cluster IP.
func (c Config) masqueradeClusterIP(w ruleWriter, node model.Node) string {
	target := "-j " + chainMarkMasq
	if c.MasqueradeAll {
		return join(w.commented(setClusterIP, "dst,dst"), target)
	}
	if local, ok := c.Local.Match(w.family, node); ok {
		return join("! "+local, w.commented(setClusterIP, "dst,dst"), target)
	}
	return join(w.commented(setClusterIP, "src,dst"), target)
}

// masqueradeOwn marks what this host sends to cluster IPs of a range that is local as a
// whole. Over IPv4 the host dials those from the very address that it dials, as it does
// bound ones (ip_route_output_key_hash_rcu in net/ipv4/route.c takes the destination of a
// local route without a preferred source). Over IPv6 only an address that is bound is
// preferred (RFC 6724 rule 1), and the host takes what is most like it of all it has: one
// of the pods' range, which is not masqueraded, or even an external IP, which other nodes
// have, too.
func masqueradeOwn(w ruleWriter) []string {
	if w.family != model.IPv6 || len(w.ranges) == 0 {
		return nil
	}
	return []string{join("-m addrtype --src-type LOCAL", w.commented(setClusterIP, "dst,dst"), "-j "+chainMarkMasq)}
}

// postrouting rewrites the source of what was marked, and of a pod that reaches
// itself.
func (c Config) postrouting(w ruleWriter, takeover bool) {
	var hairpin []string
	if takeover {
		hairpin = append(hairpin, c.masqueradeVIPs(w))
	}
	for _, p := range []model.Protocol{model.TCP, model.UDP, model.SCTP} {
		hairpin = append(hairpin, "-p "+p.String()+" "+w.commented(setLoopBack, "dst,dst,src")+" -j MASQUERADE"+c.Masquerade.SourcePorts())
	}
	w.chain("nat", chainPostrouting, append(hairpin, c.Masquerade.Rewrite(w.family)...)...)
}

// detourRules redirect clients of this node to the cluster IP, as iptables mode does: pods
// keep their address, the host gets the node's. A client outside of the source ranges is
// not redirected and is refused later; outputRules stop the host before.
func (c Config) detourRules(w ruleWriter, node model.Node) {
	lines := []string{join(outOfRange(w), "-j RETURN")}
	if local, ok := c.Local.Match(w.family, node); ok {
		lines = append(lines, local+" -p sctp -j "+chainDetourSCTP, local+" -j "+chainDetourTo)
	}
	lines = append(lines,
		"-m addrtype --src-type LOCAL -j "+chainMarkMasq,
		"-p sctp -m addrtype --src-type LOCAL -j "+chainDetourSCTP,
		"-m addrtype --src-type LOCAL -j "+chainDetourTo,
	)
	w.chain("nat", chainDetour, lines...)
}

// outOfRange matches clients that are not in the source ranges of a load balancer.
func outOfRange(w ruleWriter) string {
	return join(
		w.matchSet(setLoadBalancerFW, "dst,dst"),
		w.notInSet(setSourceCIDR, "dst,dst,src"),
		w.notInSet(setSourceIP, "dst,dst,src"),
	)
}

// detourRule takes one frontend's clients to another address and port.
func detourRule(from model.FrontendKey, to netip.AddrPort) string {
	proto := from.Protocol.String()
	return strings.Join([]string{
		"-d", netip.PrefixFrom(from.Addr, from.Addr.BitLen()).String(), "-p", proto, "-m", proto, "--dport", fmt.Sprint(from.Port),
		"-j DNAT --to-destination", to.String(),
	}, " ")
}

func natChain(f model.Family, name string) rules.ChainKey {
	return rules.ChainKey{Family: rules.Family(f), Table: "nat", Name: name}
}
