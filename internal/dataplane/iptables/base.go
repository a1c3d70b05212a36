package iptables

import (
	"cmp"
	"slices"
	"strings"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// This file has the jumps, chains and rules of every node, without those of Services. They
// are those of kube-proxy's iptables mode (pkg/proxy/iptables/proxier.go, v1.36).

// jumps are listed in the order in which they are put at the head of their hook.
var jumps = []struct{ table, hook, target, match, comment string }{
	{"filter", "INPUT", chainExternal, stateNew, "kubernetes externally-visible service portals"},
	{"filter", "FORWARD", chainExternal, stateNew, "kubernetes externally-visible service portals"},
	{"filter", "INPUT", chainNodePorts, "", "kubernetes health check service ports"},
	{"filter", "FORWARD", chainServices, stateNew, "kubernetes service portals"},
	{"filter", "OUTPUT", chainServices, stateNew, "kubernetes service portals"},
	{"filter", "FORWARD", chainForward, "", "kubernetes forwarding rules"},
	{"filter", "INPUT", chainFirewall, stateNew, "kubernetes load balancer firewall"},
	{"filter", "OUTPUT", chainFirewall, stateNew, "kubernetes load balancer firewall"},
	{"filter", "FORWARD", chainFirewall, stateNew, "kubernetes load balancer firewall"},
	{"nat", "OUTPUT", chainServices, "", "kubernetes service portals"},
	{"nat", "PREROUTING", chainServices, "", "kubernetes service portals"},
	{"nat", "POSTROUTING", chainPostrouting, "", "kubernetes postrouting rules"},
}

const stateNew = "-m conntrack --ctstate NEW"

// baseJumps renders the jumps of a family.
func baseJumps(f model.Family) map[rules.JumpKey]rules.Jump {
	out := map[rules.JumpKey]rules.Jump{}
	for _, j := range jumps {
		key := rules.JumpKey{Family: rules.Family(f), Table: j.table, Hook: j.hook, Target: j.target}
		out[key] = rules.Jump{Args: join(j.match, comment(j.comment))}
	}
	return out
}

// compareJumps keeps the order of the jumps list; unknown ones come last.
func compareJumps(a, b rules.JumpKey) int {
	return cmp.Or(cmp.Compare(a.Family, b.Family), cmp.Compare(jumpRank(a), jumpRank(b)), a.Compare(b))
}

// compareInHook orders jumps the way they stand in their hooks: what is put at the head
// last comes first.
func compareInHook(a, b rules.JumpKey) int {
	return cmp.Or(cmp.Compare(a.Table, b.Table), cmp.Compare(a.Hook, b.Hook), cmp.Compare(jumpRank(b), jumpRank(a)), a.Compare(b))
}

func jumpRank(k rules.JumpKey) int {
	for i, j := range jumps {
		if j.table == k.Table && j.hook == k.Hook && j.target == k.Target {
			return i
		}
	}
	return len(jumps)
}

// above lists the targets of the jumps that stand above one in its hook.
func above(k rules.JumpKey) []string {
	var out []string
	for i, j := range jumps {
		if i > jumpRank(k) && j.table == k.Table && j.hook == k.Hook {
			out = append(out, j.target)
		}
	}
	return out
}

// baseChains renders the chains of all Services in one family. Of a dispatch chain it is
// what stands behind the rules of the frontends.
func (c Config) baseChains(f model.Family, host model.Host) map[rules.ChainKey]rules.Chain {
	out := map[rules.ChainKey]rules.Chain{}
	put := func(table, name string, lines ...string) {
		out[rules.ChainKey{Family: rules.Family(f), Table: table, Name: name}] = rules.Chain{Rules: strings.Join(lines, "\n")}
	}
	for table, names := range fixedChains {
		for _, name := range names {
			put(table, name)
		}
	}
	put("filter", chainForward, c.forwardRules()...)
	put("nat", chainServices, c.nodePortRules(f, host)...)
	put("nat", chainPostrouting, slices.Concat(c.boundRules(f), c.Masquerade.Rewrite(f))...)
	put("nat", chainMarkMasq, c.Masquerade.MarkRule())
	return out
}

// boundRules give what this machine sends to its endpoints an address that can be answered
// to, while the addresses of Services are its own.
func (c Config) boundRules(f model.Family) []string {
	if c.Bound == nil || !c.Bound() {
		return nil
	}
	return []string{"-m conntrack --ctstate DNAT -m addrtype --src-type LOCAL -j MASQUERADE" + c.Masquerade.Random(f)}
}

// forwardRules let through what is on its way.
func (c Config) forwardRules() []string {
	var lines []string
	if c.DropInvalid {
		lines = append(lines, "-m conntrack --ctstate INVALID -j DROP")
	}
	return append(lines,
		join(comment("kubernetes forwarding rules"), c.Masquerade.Marked(), "-j ACCEPT"),
		join(comment("kubernetes forwarding conntrack rule"), "-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT"),
	)
}

const nodePortComment = "kubernetes service nodeports; NOTE: this must be the last rule in this chain"

// nodePortRules say where NodePorts answer. On loopback they do for this machine alone:
// with route_localnet a neighbour's packets get there, too, while the address of who
// sends them is not one of ours.
func (c Config) nodePortRules(f model.Family, host model.Host) []string {
	target := join(comment(nodePortComment), "-m addrtype --dst-type LOCAL", "-j", chainNodePorts)
	if c.Everywhere != nil && c.Everywhere(f) {
		if f == model.IPv6 {
			return []string{"! -d ::1/128 " + target}
		}
		return append(c.localhostRules(), "! -d 127.0.0.0/8 "+target)
	}
	var lines []string
	if f == model.IPv4 {
		lines = c.localhostRules()
	}
	for _, a := range host.NodePorts {
		if model.FamilyOf(a) == f && !a.IsLoopback() {
			lines = append(lines, join("-d", single(a), comment(nodePortComment), "-j", chainNodePorts))
		}
	}
	return lines
}

func (c Config) localhostRules() []string {
	if !c.localhost() {
		return nil
	}
	return []string{join("-d 127.0.0.0/8", comment(nodePortComment), "-m addrtype --src-type LOCAL", "-j", chainNodePorts)}
}

// baseEntries are the rules of dispatch chains that belong to no frontend: who may route
// to loopback with route_localnet is this machine alone.
func (c Config) baseEntries(f model.Family) []entry {
	if f != model.IPv4 {
		return nil
	}
	return []entry{{
		chain: filterChain(f, chainFirewall),
		rule: join("! -s 127.0.0.0/8 -d 127.0.0.0/8", comment("block incoming localnet connections"),
			"-m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP"),
	}}
}

func natChain(f model.Family, name string) rules.ChainKey {
	return rules.ChainKey{Family: rules.Family(f), Table: "nat", Name: name}
}

func filterChain(f model.Family, name string) rules.ChainKey {
	return rules.ChainKey{Family: rules.Family(f), Table: "filter", Name: name}
}

// comment matches anything, and says why.
func comment(text string) string { return "-m comment --comment " + rules.Quote(text) }

// join puts the parts of a rule together, leaving out empty ones.
func join(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(p string) bool { return p == "" }), " ")
}
