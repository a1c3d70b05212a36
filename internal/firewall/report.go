package firewall

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// Kind is the kind of a frontend, as far as firewalls are concerned.
type Kind uint8

// The kinds.
const (
	ClusterIP Kind = iota + 1
	External       // an external IP, or a load balancer's address
	NodePort
)

// kinds are those of frontends that clients dial, by their names.
var kinds = map[string]Kind{
	model.KindClusterIP.String(): ClusterIP, model.KindLoadBalancer.String(): External,
	model.KindExternalIP.String(): External, model.KindNodePort.String(): NodePort,
}

// KindOf returns the kind of a frontend by its name; ok is false for one that no client dials.
func KindOf(name string) (k Kind, ok bool) {
	k, ok = kinds[name]
	return k, ok
}

// Frontend is an address of a Service.
type Frontend struct {
	Service  string // namespace/name
	Kind     Kind
	Addr     netip.Addr
	Port     uint16
	Protocol uint8
	// Backend is one of its endpoints, the zero AddrPort where it has none.
	Backend netip.AddrPort
}

// Facts are what else is known of the node.
type Facts struct {
	// IPVS: packets to Services are for this machine; else rules of iptables translate them
	// before, and they are forwarded.
	IPVS bool
	// NoSets: our sets are not those of ipset, so rules of iptables cannot match them.
	NoSets bool
	// Pods are addresses, one a family, that pods of this node have or might have.
	Pods []netip.Addr
	// NodePorts is the range of NodePorts.
	NodePorts [2]uint16
	// ServiceCIDRs are the ranges of cluster IPs, where they are known.
	ServiceCIDRs []netip.Prefix
	// PodCIDRs are the ranges of pods of all nodes, where they are known.
	PodCIDRs []netip.Prefix
}

// Report has the effects of filters of other programs on Services.
type Report struct {
	Blocks []Block
	// Unclear are base chains of which it cannot be said whether they drop something.
	Unclear []string
	// Unread are tables that could not be read.
	Unread []string
	// Partial: there are more frontends than were judged.
	Partial bool
}

// Block is one place where packets of Services are dropped.
type Block struct {
	Cause Cause
	// Hook is where. Reply means that answers are dropped there and not requests.
	Hook  string
	Reply bool
	// From are the clients concerned: FromPods, FromOutside.
	From []string
	// Services is how many are concerned, Names the first of them, NodePorts the first of
	// their NodePorts.
	Services  int
	Names     []string
	NodePorts []uint16
	// Fix are commands that let the packets pass, and nothing else.
	Fix []string
}

// Whose packets are dropped (Block.From).
const (
	FromPods    = "pods"
	FromOutside = "outside"
)

// most of each kind that a report names.
const (
	mostBlocks   = 16
	mostNames    = 3
	mostPrefixes = 16
	mostWork     = 3_000_000 // rules evaluated: well below a second
)

// Judge returns the verdicts of the filters on packets to frontends.
func Judge(tables []Table, frontends []Frontend, facts Facts) Report {
	j := judge{facts: facts, found: map[string]*gathered{}}
	for _, t := range tables {
		if t.Unread != "" {
			j.report.Unread = append(j.report.Unread, t.Name+": "+t.Unread)
		}
		for _, hook := range hooks(facts.IPVS) {
			for _, base := range t.base(hook) {
				j.chain(t, base, hook, frontends)
			}
		}
	}
	return j.done()
}

// Quiet reports whether no filter drops any packet that may be one to a Service, whatever its
// address and port: then no frontend need be judged.
func Quiet(tables []Table, facts Facts) bool {
	for _, t := range tables {
		if t.Unread != "" {
			return false
		}
		for _, hook := range hooks(facts.IPVS) {
			for _, base := range t.base(hook) {
				if !t.quiet(base, hook, facts) {
					return false
				}
			}
		}
	}
	return true
}

func (t Table) quiet(base, hook string, facts Facts) bool {
	work := 0
	for _, addr := range []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()} {
		if addr.Is4() && !t.IPv4 || addr.Is6() && !t.IPv6 {
			continue
		}
		for _, protocol := range []uint8{tcp, udp, sctp} {
			f := Frontend{Kind: External, Addr: addr, Port: 1, Protocol: protocol, Backend: netip.AddrPortFrom(addr, 1)}
			for _, p := range probes(f, hook, facts) {
				p.packet.Dest, p.packet.Port = netip.Addr{}, 0
				if r := t.meet(base, p.packet, &work); r.Drops || r.Unclear {
					return false
				}
			}
		}
	}
	return true
}

// hooks are those that packets of Services pass.
func hooks(ipvs bool) []string {
	if ipvs {
		return []string{"input", "forward", "output"}
	}
	return []string{"forward"}
}

type judge struct {
	facts  Facts
	found  map[string]*gathered
	order  []string
	report Report
	work   int
}

// gathered is a Block that is being filled.
type gathered struct {
	block     Block
	table     Table
	services  map[string]struct{}
	addresses map[netip.Addr]Kind
	nodePorts map[uint16]struct{}
	protocols map[uint8]struct{} // protocols of node ports
}

// probe is a packet, and the Services that it represents.
type probe struct {
	packet Packet
	from   string
	// reply: an answer, which is one for all.
	reply bool
}

// chain judges one base chain: first for a packet of which neither address nor port is known,
// and only where that depends on them for each frontend.
func (j *judge) chain(t Table, base, hook string, frontends []Frontend) {
	unclear := false
	asked := map[probe]Finding{}
	for _, f := range frontends {
		if f.Addr.Is4() && !t.IPv4 || f.Addr.Is6() && !t.IPv6 {
			continue
		}
		for _, p := range probes(f, hook, j.facts) {
			general := p
			general.packet.Dest, general.packet.Port = netip.Addr{}, 0
			r, known := asked[general]
			if !known {
				r = t.meet(base, general.packet, &j.work)
				asked[general] = r
			}
			if r.Unclear && general != p {
				if j.work > mostWork {
					j.report.Partial = true
					continue
				}
				r = t.meet(base, p.packet, &j.work)
			}
			unclear = unclear || r.Unclear
			if r.Drops {
				j.blocked(t, hook, p, r.Cause, f)
			}
		}
	}
	if unclear {
		j.report.Unclear = append(j.report.Unclear, fmt.Sprintf("table %s, chain %s", t.Name, base))
	}
}

// probes are the packets of a frontend in a hook.
func probes(f Frontend, hook string, facts Facts) []probe {
	p := Packet{Hook: hook, IPv6: f.Addr.Is6(), Protocol: f.Protocol, State: New, DNAT: triOf(!facts.IPVS)}
	var pod netip.Addr
	for _, a := range facts.Pods {
		if a.Is6() == p.IPv6 {
			pod = a
		}
	}
	var out []probe
	request := func() {
		fromPod := p
		fromPod.Source = pod
		out = append(out, probe{packet: fromPod, from: FromPods})
		if f.Kind != ClusterIP {
			out = append(out, probe{packet: p, from: FromOutside})
		}
	}
	switch {
	case hook == "input":
		p.Dest, p.Port = f.Addr, f.Port
		request()
	case !f.Backend.IsValid():
	case hook == "output":
		p.Dest, p.Port, p.DNAT = f.Backend.Addr(), f.Backend.Port(), Maybe
		request()
	default:
		if !facts.IPVS {
			p.Dest, p.Port = f.Backend.Addr(), f.Backend.Port()
			request()
		}
		p.Dest, p.Port, p.State, p.DNAT = netip.Addr{}, 0, Reply, Maybe
		out = append(out, probe{packet: p, from: FromPods, reply: true})
	}
	return out
}

func (j *judge) blocked(t Table, hook string, p probe, c Cause, f Frontend) {
	key := fmt.Sprint(c.Table, c.Base, c.Chain, c.Number, p.reply)
	g := j.found[key]
	if g == nil {
		if len(j.found) == mostBlocks {
			j.report.Partial = true
			return
		}
		g = &gathered{
			table: t, block: Block{Cause: c, Hook: hook, Reply: p.reply}, services: map[string]struct{}{}, addresses: map[netip.Addr]Kind{},
			nodePorts: map[uint16]struct{}{}, protocols: map[uint8]struct{}{},
		}
		j.found[key], j.order = g, append(j.order, key)
	}
	if !slices.Contains(g.block.From, p.from) && !p.reply {
		g.block.From = append(g.block.From, p.from)
	}
	g.services[f.Service] = struct{}{}
	switch {
	case hook == "output":
		g.addresses[f.Backend.Addr()] = ClusterIP // one of a range, as cluster IPs are
	case f.Kind == NodePort:
		g.nodePorts[f.Port], g.protocols[f.Protocol] = struct{}{}, struct{}{}
	default:
		g.addresses[f.Addr] = f.Kind
	}
}

func (j *judge) done() Report {
	for _, key := range j.order {
		g := j.found[key]
		b := g.block
		b.Services = len(g.services)
		b.Names = firsts(g.services, strings.Compare)
		b.NodePorts = firsts(g.nodePorts, cmp.Compare)
		b.Fix = g.fix(j.facts)
		slices.Sort(b.From)
		j.report.Blocks = append(j.report.Blocks, b)
	}
	return j.report
}

// firsts are the first few of a set.
func firsts[T comparable](set map[T]struct{}, compare func(a, b T) int) []T {
	out := make([]T, 0, len(set))
	for one := range set {
		out = append(out, one)
	}
	slices.SortFunc(out, compare)
	return out[:min(mostNames, len(out))]
}

// Ours reports whether our own rules are to keep this from happening: the drop is at the end
// of INPUT of iptables, before which Services are accepted (dataplane/ipvs).
func (b Block) Ours() bool {
	return b.Hook == "input" && b.Cause.Base == "INPUT" && (b.Cause.Chain == "INPUT" || b.Cause.Chain == "")
}

// Key names the block as long as it exists, regardless of earlier rules.
func (b Block) Key() string {
	return fmt.Sprint(b.Cause.Table, "/", b.Cause.Base, "/", b.Cause.Chain, "/", b.Cause.Word, "/", b.Reply)
}

// String describes in a sentence what is dropped, and by what.
func (b Block) String() string {
	what := fmt.Sprintf("packets to %s", count(b.Services, "Service"))
	if b.Reply {
		what = fmt.Sprintf("answers of the endpoints of %s", count(b.Services, "Service"))
	}
	names := strings.Join(b.Names, ", ")
	if more := b.Services - len(b.Names); more > 0 {
		names += fmt.Sprintf(" and %d more", more)
	}
	ports := ""
	if len(b.NodePorts) > 0 && !b.Reply {
		var list []string
		for _, p := range b.NodePorts {
			list = append(list, fmt.Sprint(p))
		}
		ports = "; node ports " + strings.Join(list, ", ")
	}
	from := ""
	if len(b.From) > 0 {
		from = " from " + strings.Join(b.From, " and ")
	}
	return fmt.Sprintf("%s (%s%s)%s are dropped: %s", what, names, ports, from, b.Cause)
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
