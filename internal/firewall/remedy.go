package firewall

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// fix returns the commands that let the packets of a block pass.
func (g *gathered) fix(facts Facts) []string {
	switch {
	case g.block.Hook == "input" && g.table.firewalld():
		return g.zones(facts)
	case g.table.Tool != "nft":
		return g.iptables(facts)
	}
	return g.nft(facts)
}

// nft inserts rules at the head of the base chain, for an accept ends that chain alone.
func (g *gathered) nft(facts Facts) []string {
	insert := fmt.Sprintf("nft insert rule %s %s ", g.table.Name, g.block.Cause.Base)
	switch {
	case g.block.Reply:
		return []string{insert + "ct state established,related accept"}
	case g.block.Hook == "forward":
		return []string{insert + "ct status dnat accept"}
	}
	ranges := facts.ServiceCIDRs
	if g.block.Hook == "output" {
		ranges = facts.PodCIDRs
	}
	var out []string
	for _, family := range []struct {
		word string
		ipv6 bool
	}{{"ip", false}, {"ip6", true}} {
		if to := g.prefixes(family.ipv6, ranges); len(to) > 0 {
			out = append(out, insert+family.word+" daddr "+braced(texts(to))+" accept")
		}
	}
	if len(g.nodePorts) > 0 {
		for _, proto := range g.protocolNames() {
			out = append(out, insert+fmt.Sprintf("%s dport %d-%d accept", proto, facts.NodePorts[0], facts.NodePorts[1]))
		}
	}
	return out
}

func braced(list []string) string {
	if len(list) == 1 {
		return list[0]
	}
	return "{ " + strings.Join(list, ", ") + " }"
}

func texts(list []netip.Prefix) []string {
	out := make([]string, len(list))
	for i, p := range list {
		out[i] = p.String()
		if p.IsSingleIP() {
			out[i] = p.Addr().String()
		}
	}
	return out
}

func (g *gathered) protocolNames() []string {
	var out []string
	for _, p := range slices.Sorted(maps.Keys(g.protocols)) {
		out = append(out, protocolNames[p])
	}
	return out
}

// zones are those of firewalld: a policy of its own for what goes to this machine, which it
// keeps when it is reloaded. Policies come with firewalld 0.9.
func (g *gathered) zones(facts Facts) []string {
	const cmd, policy = "firewall-cmd --permanent ", "--policy=kube-ipvs "
	out := []string{
		"firewall-cmd --permanent --get-policies | grep -qw kube-ipvs || " + cmd + "--new-policy=kube-ipvs",
		cmd + policy + "--add-ingress-zone=ANY",
		cmd + policy + "--add-egress-zone=HOST",
	}
	for _, family := range []struct {
		word string
		ipv6 bool
	}{{"ipv4", false}, {"ipv6", true}} {
		for _, p := range texts(g.prefixes(family.ipv6, facts.ServiceCIDRs)) {
			out = append(out, fmt.Sprintf(`%s%s--add-rich-rule='rule family="%s" destination address="%s" accept'`, cmd, policy, family.word, p))
		}
	}
	if len(g.nodePorts) > 0 {
		for _, proto := range g.protocolNames() {
			out = append(out, fmt.Sprintf("%s%s--add-port=%d-%d/%s", cmd, policy, facts.NodePorts[0], facts.NodePorts[1], proto))
		}
	}
	return append(out, "firewall-cmd --reload")
}

// iptables puts rules right before the rule of the base chain that leads to the drop, after those
// that precede it. In ipvs mode sets say what goes to a Service.
func (g *gathered) iptables(facts Facts) []string {
	insert := fmt.Sprintf("%s -w -t filter -I %s %d ", g.table.Tool, g.block.Cause.Base, max(g.block.Cause.At, 1))
	if g.block.Cause.Chain == "" {
		insert = fmt.Sprintf("%s -w -t filter -A %s ", g.table.Tool, g.block.Cause.Base)
	}
	switch {
	case g.block.Reply:
		return []string{insert + "-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT"}
	case g.block.Hook == "forward":
		return []string{insert + "-m conntrack --ctstate DNAT -j ACCEPT"}
	case g.block.Hook == "output":
		return []string{insert + "-m ipvs --ipvs -j ACCEPT"}
	}
	out := g.accepts(insert, facts)
	if len(g.nodePorts) > 0 {
		for _, proto := range g.protocolNames() {
			out = append(out, insert+fmt.Sprintf("-p %s -m %s --dport %d:%d -j ACCEPT", proto, proto, facts.NodePorts[0], facts.NodePorts[1]))
		}
	}
	return out
}

// accepts returns rules that accept what is for addresses of Services, by sets where there are some.
func (g *gathered) accepts(insert string, facts Facts) (out []string) {
	if facts.NoSets {
		for _, p := range g.prefixes(g.table.IPv6, facts.ServiceCIDRs) {
			out = append(out, insert+"-d "+p.String()+" -j ACCEPT")
		}
		return out
	}
	prefix := "KUBE-"
	if g.table.IPv6 {
		prefix = "KUBE-6-"
	}
	for _, set := range []string{"CLUSTER-IP", "LOAD-BALANCER", "EXTERNAL-IP", "EXTERNAL-IP-LOCAL"} {
		but := ""
		if set == "LOAD-BALANCER" && !g.guarded() { // source ranges are still to be looked at
			but = "-m set ! --match-set " + prefix + "LOAD-BALANCER-FW dst,dst "
		}
		out = append(out, insert+"-m set --match-set "+prefix+set+" dst,dst "+but+"-j ACCEPT")
	}
	return out
}

// guarded reports whether source ranges of load balancers are enforced before the place where
// rules are inserted.
func (g *gathered) guarded() bool {
	list := g.table.chains[g.block.Cause.Base].rules
	for _, r := range list[:min(max(g.block.Cause.At-1, 0), len(list))] {
		if l, is := r.(line); is && l.parts.Target == ourRanges {
			return true
		}
	}
	return false
}

// prefixes are the destinations to accept: the configured range of cluster IPs or of pods, or else
// the smallest range that holds all known ones, and each other address.
func (g *gathered) prefixes(ipv6 bool, ranges []netip.Prefix) []netip.Prefix {
	var cluster, others []netip.Addr
	for _, a := range slices.SortedFunc(maps.Keys(g.addresses), netip.Addr.Compare) {
		switch {
		case a.Is6() != ipv6:
		case g.addresses[a] == ClusterIP:
			cluster = append(cluster, a)
		default:
			others = append(others, a)
		}
	}
	var out []netip.Prefix
	for _, p := range ranges {
		if n := len(cluster); p.Addr().Is6() == ipv6 {
			if cluster = slices.DeleteFunc(cluster, p.Contains); len(cluster) < n {
				out = append(out, p)
			}
		}
	}
	if len(cluster) > 0 {
		out = append(out, smallest(cluster))
	}
	for _, a := range others {
		out = append(out, netip.PrefixFrom(a, a.BitLen()))
	}
	if len(out) > mostPrefixes { // those that are left are named when these pass
		out = out[:mostPrefixes]
	}
	return out
}

// smallest is the smallest range that holds sorted addresses of one family.
func smallest(sorted []netip.Addr) netip.Prefix {
	first, last := sorted[0], sorted[len(sorted)-1]
	for bits := first.BitLen(); ; bits-- {
		if p, err := first.Prefix(bits); err != nil || p.Contains(last) {
			return p
		}
	}
}
