package iptables

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/netfilter"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// rows are what one Service has in the kernel.
type rows struct {
	chains  map[netfilter.ChainKey]netfilter.Chain
	entries map[entry]struct{}
}

// portKey is a port of a Service in one family. Each has chains.
type portKey struct {
	family   model.Family
	name     string // model.Frontend.PortName
	protocol model.Protocol
}

// render returns the rows of the frontends that one Service has in force. They are the rules
// of a Service port in kube-proxy's iptables mode.
func (c Config) render(frontends []model.Frontend, node model.Node) rows {
	w := writer{chains: map[netfilter.ChainKey][]netfilter.Rule{}, entries: map[entry]struct{}{}}
	byPort := map[portKey]*servicePort{}
	for _, f := range frontends {
		k := portKey{model.FamilyOf(f.Key.Addr), f.PortName, f.Key.Protocol}
		if byPort[k] == nil {
			byPort[k] = c.newPort(w, k, f, node)
		}
		byPort[k].add(f)
	}
	for _, p := range byPort {
		p.render()
	}
	return w.rows()
}

// writer collects the rules of one Service.
type writer struct {
	chains  map[netfilter.ChainKey][]netfilter.Rule
	entries map[entry]struct{}
}

func (w writer) rows() rows {
	r := rows{chains: make(map[netfilter.ChainKey]netfilter.Chain, len(w.chains)), entries: w.entries}
	for k, list := range w.chains {
		r.chains[k] = netfilter.NewChain(k.Family, list...)
	}
	return r
}

// servicePort is one port on its way into rows.
type servicePort struct {
	writer
	portKey
	config Config
	node   model.Node
	// portName is the name in rules, named the one from which names of chains are made, and hash
	// the end of these.
	portName, named, hash string
	affinity              time.Duration
	// all and local are the endpoints by policy.
	all, local []netip.AddrPort
	frontends  []model.Frontend
}

func (c Config) newPort(w writer, k portKey, f model.Frontend, node model.Node) *servicePort {
	named := c.nameOf(f)
	return &servicePort{
		writer: w, portKey: k, config: c, node: node, affinity: f.Affinity,
		portName: f.Name(), named: named, hash: hashed(named, k.protocol.String()),
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
	if f.Kind != model.KindDetour { // other frontends use its endpoints, and no client dials it
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
		p.enter(p.nat(chainServices), p.match(f, "cluster IP"), netfilter.JumpTo(p.pool(f.Local)))
		p.poolChain(f.Local, p.masqueradeClusterIP(f)...)
		return
	case model.KindNodePort:
		p.enter(p.nat(chainNodePorts), p.matchPort(f, p.portName), p.external())
	case model.KindLoadBalancer:
		target := p.external()
		if len(f.SourceRanges) > 0 {
			target = netfilter.JumpTo(prefixFirewall + p.hash)
			p.limit(f)
		}
		p.enter(p.nat(chainServices), p.match(f, "loadbalancer IP"), target)
	default:
		p.enter(p.nat(chainServices), p.match(f, "external IP"), p.external())
	}
	p.externalChain(f)
}

// refuse adds the rule for a frontend without endpoints. It drops packets where another node has
// endpoints, and rejects them otherwise.
func (p *servicePort) refuse(f model.Frontend) {
	why, verdict := noEndpoints, netfilter.Target(netfilter.Reject{})
	if f.NoLocal {
		why, verdict = noLocalEndpoints, netfilter.Drop
	}
	switch f.Kind {
	case model.KindClusterIP:
		p.enter(p.filter(chainServices), p.match(f, why), verdict)
	case model.KindNodePort:
		match := netfilter.All{netfilter.Protocol(p.protocol), p.comment(why), netfilter.Local(netfilter.Dst), p.port(f)}
		p.enter(p.filter(chainExternal), match, verdict)
	default:
		p.enter(p.filter(chainExternal), p.match(f, why), verdict)
	}
}

// The texts of comments after the name of the Service port, by which DropOf recognizes a rule.
const (
	noEndpoints      = "has no endpoints"
	noLocalEndpoints = "has no local endpoints"
	notAccepted      = "traffic not accepted by "
)

// limit admits only the source ranges of a load balancer.
func (p *servicePort) limit(f model.Frontend) {
	k := p.nat(prefixFirewall + p.hash)
	p.enter(p.filter(chainFirewall), p.match(f, notAccepted+k.Name), netfilter.Drop)
	list, made := p.chains[k]
	if made {
		list = list[:len(list)-1]
	} else {
		for _, r := range f.SourceRanges {
			list = append(list, p.from(r.Masked()))
		}
	}
	if f.OwnNode { // the host dials the address from the address itself
		list = append(list, p.from(netip.PrefixFrom(f.Key.Addr, f.Key.Addr.BitLen())))
	}
	p.chains[k] = append(list, netfilter.If(netfilter.Comment("other traffic to "+p.portName+" will be dropped by "+chainFirewall)))
}

func (p *servicePort) from(source netip.Prefix) netfilter.Rule {
	return netfilter.If(netfilter.Source(source), p.comment("loadbalancer IP")).Then(p.external())
}

// externalChain decides who may be served by which endpoints, and with which source.
func (p *servicePort) externalChain(f model.Frontend) {
	pool := func(local bool, match ...netfilter.Match) netfilter.Rule {
		return netfilter.If(match...).Then(netfilter.JumpTo(p.pool(local)))
	}
	traffic := func(which string) netfilter.Match {
		return netfilter.Comment(which + " for " + p.portName + " external destinations")
	}
	var list []netfilter.Rule
	if !f.Local {
		list = []netfilter.Rule{
			netfilter.If(traffic("masquerade traffic")).Then(netfilter.JumpTo(chainMarkMasq)),
			pool(false),
		}
	} else {
		if pods := p.config.Local.Match(p.family, p.node); pods != nil && len(p.all) > 0 {
			list = append(list, pool(false, pods, traffic("pod traffic")))
		}
		own := netfilter.Local(netfilter.Src)
		list = append(list, netfilter.If(traffic("masquerade LOCAL traffic"), own).Then(netfilter.JumpTo(chainMarkMasq)))
		if len(p.all) > 0 {
			list = append(list, pool(false, traffic("route LOCAL traffic"), own))
		}
		if len(f.Backends) > 0 {
			list = append(list, pool(true))
		}
	}
	p.chains[p.nat(prefixExternal+p.hash)] = list
	for _, local := range []bool{false, true} {
		leads := slices.ContainsFunc(list, func(r netfilter.Rule) bool { return r.JumpsTo() == p.pool(local) })
		if len(p.list(local)) > 0 && leads {
			p.poolChain(local)
		}
	}
}

// masqueradeClusterIP marks what has to leave with the node's address.
func (p *servicePort) masqueradeClusterIP(f model.Frontend) []netfilter.Rule {
	match := netfilter.All{p.match(f, "cluster IP")}
	if !p.config.MasqueradeAll {
		pods := p.config.Local.Match(p.family, p.node)
		if pods == nil {
			return nil
		}
		match = append(match, netfilter.Not{Match: pods})
	}
	return []netfilter.Rule{netfilter.If(match...).Then(netfilter.JumpTo(chainMarkMasq))}
}

// poolChain spreads connections over the endpoints of a policy. It is made once, and
// what comes first in it by the frontend that has something to put there.
func (p *servicePort) poolChain(local bool, first ...netfilter.Rule) {
	k := p.nat(p.pool(local))
	if _, there := p.chains[k]; there && len(first) == 0 {
		return
	}
	endpoints := p.list(local)
	list := slices.Clone(first)
	if p.affinity > 0 {
		for _, to := range endpoints {
			name := p.endpoint(to)
			list = append(list, netfilter.If(netfilter.Seen{List: name, Within: p.affinity}).Then(netfilter.JumpTo(name)))
		}
	}
	for i, to := range endpoints {
		leads := netfilter.JumpTo(p.endpoint(to))
		if rest := len(endpoints) - i; rest > 1 {
			list = append(list, netfilter.If(netfilter.OneIn(rest)).Then(leads))
		} else {
			list = append(list, netfilter.Always(leads))
		}
	}
	p.chains[k] = list
}

// endpointChains are for the endpoints of every policy that is in use.
func (p *servicePort) endpointChains() {
	for _, local := range []bool{false, true} {
		if _, used := p.chains[p.nat(p.pool(local))]; !used {
			continue
		}
		for _, to := range p.list(local) {
			name, proto := p.endpoint(to), netfilter.Protocol(p.protocol)
			var remember netfilter.Match
			if p.affinity > 0 {
				remember = netfilter.Remember{List: name}
			}
			p.chains[p.nat(name)] = []netfilter.Rule{
				netfilter.If(netfilter.SourceIP(to.Addr())).Then(netfilter.JumpTo(chainMarkMasq)), // to itself, by the Service
				netfilter.If(proto, remember, netfilter.DestinationPort{Protocol: proto}).Then(netfilter.DNAT(to)),
			}
		}
	}
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

// external leads to the chain for clients outside of the cluster.
func (p *servicePort) external() netfilter.Target { return netfilter.JumpTo(prefixExternal + p.hash) }

func (p *servicePort) enter(chain netfilter.ChainKey, match netfilter.Match, target netfilter.Target) {
	p.entries[entry{chain, netfilter.NewLine(chain.Family, netfilter.If(match).Then(target))}] = struct{}{}
}

func (p *servicePort) nat(name string) netfilter.ChainKey    { return netfilter.Nat(p.family, name) }
func (p *servicePort) filter(name string) netfilter.ChainKey { return netfilter.Filter(p.family, name) }

// match matches packets to the address that a client dials.
func (p *servicePort) match(f model.Frontend, what string) netfilter.Match {
	return netfilter.All{netfilter.DestinationIP(f.Key.Addr), netfilter.Protocol(p.protocol), p.comment(what), p.port(f)}
}

// matchPort is the same on any address.
func (p *servicePort) matchPort(f model.Frontend, text string) netfilter.Match {
	return netfilter.All{netfilter.Protocol(p.protocol), netfilter.Comment(text), p.port(f)}
}

// comment names the Service port.
func (p *servicePort) comment(what string) netfilter.Match {
	return netfilter.Comment(p.portName + " " + what)
}

func (p *servicePort) port(f model.Frontend) netfilter.Match {
	return netfilter.DestinationPort{Protocol: netfilter.Protocol(p.protocol), Port: f.Key.Port}
}

// renderHealth opens the filter to a health-check port.
func renderHealth(id model.ServiceID, h model.HealthCheck) map[entry]struct{} {
	out := map[entry]struct{}{}
	for f, e := range map[model.Family]model.LocalEndpoints{model.IPv4: h.IPv4, model.IPv6: h.IPv6} {
		if h.Port != 0 && e.Served {
			k := netfilter.Filter(f, chainNodePorts)
			why := netfilter.Comment(id.Namespace + "/" + id.Name + " health check node port")
			port := netfilter.DestinationPort{Protocol: netfilter.TCP, Port: h.Port}
			out[entry{k, netfilter.NewLine(k.Family, netfilter.If(netfilter.TCP, why, port).Then(netfilter.Accept))}] = struct{}{}
		}
	}
	return out
}
