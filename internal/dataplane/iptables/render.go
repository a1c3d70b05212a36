package iptables

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// entry is a rule of a dispatch chain.
type entry struct {
	chain rules.ChainKey
	rule  string
}

// target is the chain that an entry leads to; its Name is empty if it leads to none.
func (e entry) target() rules.ChainKey {
	const jump = " -j "
	k := rules.ChainKey{Family: e.chain.Family, Table: e.chain.Table}
	if at := strings.LastIndex(e.rule, jump); at >= 0 {
		k.Name = e.rule[at+len(jump):]
	}
	return k
}

func compareEntries(a, b entry) int {
	return cmp.Or(a.chain.Compare(b.chain), cmp.Compare(a.rule, b.rule))
}

// rows are what one Service has in the kernel.
type rows struct {
	chains  map[rules.ChainKey]rules.Chain
	entries map[entry]struct{}
}

// portKey is a port of a Service in one family: what chains are made for.
type portKey struct {
	family   model.Family
	name     string // model.Frontend.PortName
	protocol model.Protocol
}

// render returns the rows of the frontends that one Service has in force. They are the rules
// of a Service port in kube-proxy's iptables mode.
func (c Config) render(frontends []model.Frontend, node model.Node) rows {
	r := rows{chains: map[rules.ChainKey]rules.Chain{}, entries: map[entry]struct{}{}}
	byPort := map[portKey]*servicePort{}
	for _, f := range frontends {
		k := portKey{model.FamilyOf(f.Key.Addr), f.PortName, f.Key.Protocol}
		if byPort[k] == nil {
			byPort[k] = c.newPort(r, k, f, node)
		}
		byPort[k].add(f)
	}
	for _, p := range byPort {
		p.render()
	}
	return r
}

// servicePort is one port on its way into rows.
type servicePort struct {
	rows
	portKey
	config Config
	node   model.Node
	// title is the name that rules show, named the one that names of chains are made of,
	// and hash how those end.
	title, named, hash string
	affinity           time.Duration
	// all and local are the endpoints by policy.
	all, local []netip.AddrPort
	frontends  []model.Frontend
}

func (c Config) newPort(r rows, k portKey, f model.Frontend, node model.Node) *servicePort {
	named := c.nameOf(f)
	return &servicePort{
		rows: r, portKey: k, config: c, node: node, affinity: f.Affinity,
		title: f.Name(), named: named, hash: hashed(named, k.protocol.String()),
	}
}

// nameOf names the Service port of a frontend in the names of chains.
func (c Config) nameOf(f model.Frontend) string {
	if c.Both && f.Service.Origin == model.FromFile {
		return string(f.Service.Origin) + "/" + f.Name()
	}
	return f.Name()
}

func (p *servicePort) add(f model.Frontend) {
	if list := endpoints(f.Backends); f.Local {
		p.local = list
	} else {
		p.all = list
	}
	if f.Kind != model.KindDetour { // it lends its endpoints, and nobody can dial it
		p.frontends = append(p.frontends, f)
	}
}

// endpoints lists those that take new connections, in the order of kube-proxy.
func endpoints(backends []model.Backend) []netip.AddrPort {
	out := make([]netip.AddrPort, 0, len(backends))
	for _, b := range backends {
		if b.Weight > 0 {
			out = append(out, b.Addr)
		}
	}
	slices.SortFunc(out, func(a, b netip.AddrPort) int { return cmp.Compare(a.String(), b.String()) })
	return out
}

func (p *servicePort) render() {
	for _, f := range p.frontends {
		if len(f.Backends) > 0 || f.NoLocal && f.Kind.External() {
			p.dispatch(f)
		}
		if len(f.Backends) == 0 {
			p.refuse(f)
		}
	}
	p.endpointChains()
}

// dispatch leads what is for a frontend to the chain that serves it.
func (p *servicePort) dispatch(f model.Frontend) {
	switch f.Kind {
	case model.KindClusterIP:
		p.enter(p.nat(chainServices), p.match(f, "cluster IP"), p.pool(f.Local))
		p.poolChain(f.Local, p.masqueradeClusterIP(f)...)
		return
	case model.KindNodePort:
		p.enter(p.nat(chainNodePorts), p.matchPort(f, p.title), prefixExternal+p.hash)
	case model.KindLoadBalancer:
		target := prefixExternal + p.hash
		if len(f.SourceRanges) > 0 {
			target = prefixFirewall + p.hash
			p.limit(f)
		}
		p.enter(p.nat(chainServices), p.match(f, "loadbalancer IP"), target)
	default:
		p.enter(p.nat(chainServices), p.match(f, "external IP"), prefixExternal+p.hash)
	}
	p.externalChain(f)
}

// refuse answers for a frontend without endpoints: silence where there are some
// elsewhere, else a refusal.
func (p *servicePort) refuse(f model.Frontend) {
	why, verdict := "has no endpoints", "REJECT --reject-with icmp-port-unreachable"
	if p.family == model.IPv6 {
		verdict = "REJECT --reject-with icmp6-port-unreachable"
	}
	if f.NoLocal {
		why, verdict = "has no local endpoints", "DROP"
	}
	switch f.Kind {
	case model.KindClusterIP:
		p.enter(p.filter(chainServices), p.match(f, why), verdict)
	case model.KindNodePort:
		match := join("-p", p.protocol.String(), comment(p.title+" "+why), "-m addrtype --dst-type LOCAL", p.dport(f))
		p.enter(p.filter(chainExternal), match, verdict)
	default:
		p.enter(p.filter(chainExternal), p.match(f, why), verdict)
	}
}

// limit lets only some clients of a load balancer through.
func (p *servicePort) limit(f model.Frontend) {
	k := p.nat(prefixFirewall + p.hash)
	p.enter(p.filter(chainFirewall), p.match(f, "traffic not accepted by "+k.Name), "DROP")
	lines := []string{}
	if c, ok := p.chains[k]; ok {
		lines = strings.Split(c.Rules, "\n")
		lines = lines[:len(lines)-1]
	} else {
		for _, r := range f.SourceRanges {
			lines = append(lines, p.fromTo(r.Masked().String()))
		}
	}
	if f.OwnNode { // the host dials the address from the address itself
		lines = append(lines, p.fromTo(single(f.Key.Addr)))
	}
	lines = append(lines, comment("other traffic to "+p.title+" will be dropped by "+chainFirewall))
	p.chains[k] = rules.Chain{Rules: strings.Join(lines, "\n")}
}

func (p *servicePort) fromTo(source string) string {
	return join("-s", source, comment(p.title+" loadbalancer IP"), "-j", prefixExternal+p.hash)
}

// externalChain decides who may be served by which endpoints, and with which source.
func (p *servicePort) externalChain(f model.Frontend) {
	pool := func(local bool, match ...string) string { return join(join(match...), "-j", p.pool(local)) }
	var lines []string
	if !f.Local {
		lines = []string{
			join(comment("masquerade traffic for "+p.title+" external destinations"), "-j", chainMarkMasq),
			pool(false),
		}
	} else {
		if match, ok := p.config.Local.Match(p.family, p.node); ok && len(p.all) > 0 {
			lines = append(lines, pool(false, match, comment("pod traffic for "+p.title+" external destinations")))
		}
		const own = "-m addrtype --src-type LOCAL"
		lines = append(lines, join(comment("masquerade LOCAL traffic for "+p.title+" external destinations"), own, "-j", chainMarkMasq))
		if len(p.all) > 0 {
			lines = append(lines, pool(false, comment("route LOCAL traffic for "+p.title+" external destinations"), own))
		}
		if len(f.Backends) > 0 {
			lines = append(lines, pool(true))
		}
	}
	p.chains[p.nat(prefixExternal+p.hash)] = rules.Chain{Rules: strings.Join(lines, "\n")}
	for _, local := range []bool{false, true} {
		if len(p.list(local)) > 0 && slices.Contains(rules.Targets(strings.Join(lines, "\n")), p.pool(local)) {
			p.poolChain(local)
		}
	}
}

// masqueradeClusterIP marks what has to leave with the node's address.
func (p *servicePort) masqueradeClusterIP(f model.Frontend) []string {
	match := join("-d", single(f.Key.Addr), "-p", p.protocol.String(), comment(p.title+" cluster IP"), p.dport(f), "-j", chainMarkMasq)
	if p.config.MasqueradeAll {
		return []string{match}
	}
	local, ok := p.config.Local.Match(p.family, p.node)
	if !ok {
		return nil
	}
	return []string{notLocal(local, match)}
}

// notLocal puts the negation of a detector where iptables-save prints it: the source
// before the destination, the interface behind it.
func notLocal(local, match string) string {
	if strings.HasPrefix(local, "-s ") {
		return "! " + local + " " + match
	}
	destination, rest, _ := strings.Cut(match, " -p ")
	return destination + " ! " + local + " -p " + rest
}

// poolChain spreads connections over the endpoints of a policy. It is made once, and
// what comes first in it by the frontend that has something to put there.
func (p *servicePort) poolChain(local bool, first ...string) {
	k := p.nat(p.pool(local))
	if _, there := p.chains[k]; there && len(first) == 0 {
		return
	}
	list := p.list(local)
	lines := slices.Clone(first)
	if p.affinity > 0 {
		for _, to := range list {
			lines = append(lines, fmt.Sprintf("-m recent --rcheck --seconds %d --reap %s -j %s",
				int(p.affinity/time.Second), p.recent(to), p.endpoint(to)))
		}
	}
	for i, to := range list {
		chance := ""
		if rest := len(list) - i; rest > 1 {
			chance = "-m statistic --mode random --probability " + probability(rest)
		}
		lines = append(lines, join(chance, "-j", p.endpoint(to)))
	}
	p.chains[k] = rules.Chain{Rules: strings.Join(lines, "\n")}
}

// probability is one in n, as iptables-save prints what the kernel keeps of it in 31 bits.
func probability(n int) string {
	kept := (1<<31 + n/2) / n
	return strconv.FormatFloat(float64(kept)/(1<<31), 'f', 11, 64)
}

// endpointChains are for the endpoints of every policy that is in use.
func (p *servicePort) endpointChains() {
	for _, local := range []bool{false, true} {
		if _, used := p.chains[p.nat(p.pool(local))]; !used {
			continue
		}
		for _, to := range p.list(local) {
			set := ""
			if p.affinity > 0 {
				set = "-m recent --set " + p.recent(to)
			}
			proto := p.protocol.String()
			p.chains[p.nat(p.endpoint(to))] = rules.Chain{Rules: strings.Join([]string{
				join("-s", single(to.Addr()), "-j", chainMarkMasq), // to itself, by the Service
				join("-p", proto, set, "-m", proto, "-j DNAT --to-destination", to.String()),
			}, "\n")}
		}
	}
}

func (p *servicePort) recent(to netip.AddrPort) string {
	mask := "255.255.255.255"
	if p.family == model.IPv6 {
		mask = "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"
	}
	return join("--name", p.endpoint(to), "--mask", mask, "--rsource")
}

func (p *servicePort) endpoint(to netip.AddrPort) string {
	return endpointChain(p.named, p.protocol, to)
}

func (p *servicePort) list(local bool) []netip.AddrPort {
	if local {
		return p.local
	}
	return p.all
}

// pool names the chain that spreads over the endpoints of a policy.
func (p *servicePort) pool(local bool) string {
	if local {
		return prefixLocal + p.hash
	}
	return prefixCluster + p.hash
}

func (p *servicePort) enter(chain rules.ChainKey, match, target string) {
	p.entries[entry{chain, join(match, "-j", target)}] = struct{}{}
}

func (p *servicePort) nat(name string) rules.ChainKey    { return natChain(p.family, name) }
func (p *servicePort) filter(name string) rules.ChainKey { return filterChain(p.family, name) }

// match is what a client dials.
func (p *servicePort) match(f model.Frontend, what string) string {
	return join("-d", single(f.Key.Addr), p.matchPort(f, p.title+" "+what))
}

// matchPort is the same on any address.
func (p *servicePort) matchPort(f model.Frontend, text string) string {
	return join("-p", p.protocol.String(), comment(text), p.dport(f))
}

func (p *servicePort) dport(f model.Frontend) string {
	return join("-m", p.protocol.String(), "--dport", strconv.Itoa(int(f.Key.Port)))
}

// single is one address as iptables-save prints it.
func single(a netip.Addr) string { return netip.PrefixFrom(a, a.BitLen()).String() }

// renderHealth opens the filter to a health-check port.
func renderHealth(id model.ServiceID, h model.HealthCheck) map[entry]struct{} {
	out := map[entry]struct{}{}
	for f, e := range map[model.Family]model.LocalEndpoints{model.IPv4: h.IPv4, model.IPv6: h.IPv6} {
		if h.Port != 0 && e.Served {
			rule := join("-p tcp", comment(id.Namespace+"/"+id.Name+" health check node port"), "-m tcp --dport", strconv.Itoa(int(h.Port)), "-j ACCEPT")
			out[entry{filterChain(f, chainNodePorts), rule}] = struct{}{}
		}
	}
	return out
}
