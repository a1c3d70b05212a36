package randomops

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/kube-ipvs/kube-ipvs/internal/testkit/scenario"
)

// flagsOf are what agents of each mode are started with, one of them each time.
var flagsOf = map[string][]string{
	modeIPVS: {
		"", "--cluster-cidr=10.244.0.0/16 --masquerade-all", "--nodeport-addresses=primary",
		"--nodeport-addresses=192.0.2.2/32 --ipvs-scheduler=sh", "--external-ip-allowed-cidrs=203.0.113.0/24",
		"--vip-binding=route --service-cidrs=10.96.0.0/16,fd00:10:96::/112", "--vip-binding=address --service-cidrs=10.96.0.0/16,fd00:10:96::/112",
		"--vip-binding=route --service-cidrs=10.96.0.0/31 --cluster-cidr=10.244.0.0/16",
	},
	modeIPTables: {
		"--proxy-mode=iptables", "--proxy-mode=iptables --cluster-cidr=10.244.0.0/16", "--proxy-mode=iptables --masquerade-all",
		"--proxy-mode=iptables --nodeport-addresses=192.0.2.2/32 --cluster-cidr=10.244.0.0/16",
		"--proxy-mode=iptables --iptables-localhost-nodeports",
	},
}

// On is the kind of node for which a walk is made.
type On int

// The places. On a real kernel no call fails on demand, and no other machine is behind the links.
const (
	Fakes On = iota
	Kernel
)

// New makes the walk of a seed, with so many operations; the last one is a quiet point.
func New(seed uint64, n int, on On) Walk {
	g := generator{Writer: Writer{rand.New(rand.NewPCG(seed, 1))}, on: on}
	g.mode = g.one(modeIPVS, modeIPVS, modeIPTables)
	g.flags = strings.Fields(g.one(flagsOf[g.mode]...))
	w := Walk{Seed: seed, Flags: g.flags, Foreign: true}
	for len(w.Ops) < n-1 {
		w.Ops = append(w.Ops, g.next())
	}
	w.Ops = append(w.Ops, Operation{Verb: Quiet})
	return w
}

// generator makes operations that mean something if all those before them were done.
type generator struct {
	Writer
	on    On
	mode  string
	flags []string
}

// share is how often something is done, out of all.
type share struct {
	of int
	do func(*generator) Operation
}

// shares add up to 100 or so.
var shares = []share{
	{34, func(g *generator) Operation { n := g.name(); return put("service-"+n, g.Service(n)) }},
	{10, func(g *generator) Operation { return put("slice-"+g.name(), g.Slice(g.name(), g.name(), "more")) }},
	{8, func(g *generator) Operation { return Operation{Verb: Remove, Args: []string{g.file()}} }},
	{3, func(g *generator) Operation { return Operation{Verb: Spoil, Args: []string{g.file()}} }},
	{6, func(g *generator) Operation { return put("node", g.Nodes()) }},
	{3, (*generator).host},
	{1, (*generator).hops},
	{2, func(g *generator) Operation { return g.restart(Kill) }},
	{2, func(g *generator) Operation { return g.restart(Stop) }},
	{8, (*generator).fault},
	{7, func(g *generator) Operation {
		return Operation{Verb: Damage, Args: strings.Fields(g.one(damages[g.mode]...))}
	}},
	{8, func(*generator) Operation { return Operation{Verb: Look} }},
	{10, func(*generator) Operation { return Operation{Verb: Quiet} }},
}

func (g *generator) next() Operation {
	total := 0
	for _, s := range shares {
		total += s.of
	}
	n := g.IntN(total)
	for _, s := range shares {
		if n -= s.of; n < 0 {
			return s.do(g)
		}
	}
	panic("shares do not add up to their sum")
}

func put(name, text string) Operation {
	return Operation{Verb: Put, Args: []string{name + ".yaml"}, Text: text}
}

// file is one of those that may be there.
func (g *generator) file() string {
	return g.one("service-", "service-", "slice-") + g.name() + ".yaml"
}

// host gives the machine other addresses; one of them is wanted by Services, too, and
// one belongs to another Node at times. On a kernel it keeps one at least: the plan of a
// program that is told of none goes by its Node.
func (g *generator) host() Operation {
	args := g.some("192.0.2.1", "192.0.2.2", "2001:db8::1")
	if len(args) == 0 && g.on == Kernel {
		args = []string{firstAddress}
	}
	return Operation{Verb: Host, Args: args}
}

// hops may be an address that Services want.
func (g *generator) hops() Operation {
	if g.on == Kernel {
		return g.host()
	}
	return Operation{Verb: Hops, Args: g.some("192.0.2.9", "203.0.113.1")}
}

func (g *generator) some(choices ...string) (out []string) {
	for _, c := range choices {
		if g.IntN(2) == 0 {
			out = append(out, c)
		}
	}
	return out
}

// restart changes nothing, some flags, or the mode.
func (g *generator) restart(end Verb) Operation {
	switch g.IntN(8) {
	case 0, 1, 2, 3:
	case 4:
		g.mode = map[string]string{modeIPVS: modeIPTables, modeIPTables: modeIPVS}[g.mode]
		fallthrough
	default:
		g.flags = strings.Fields(g.one(flagsOf[g.mode]...))
	}
	return Operation{Verb: end, Args: g.flags}
}

// fault lets calls of a kernel package fail, or the agent die in one.
func (g *generator) fault() Operation {
	if g.on == Kernel {
		return Operation{Verb: Look}
	}
	args := []string{g.one(scenario.Packages()...)}
	switch nth := fmt.Sprint(1 + g.IntN(6)); g.IntN(8) {
	case 0, 1:
		args = append(args, "always")
	case 2:
		args = append(args, "crash", nth)
	default:
		args = append(args, "nth", nth)
	}
	return Operation{Verb: Fault, Args: args}
}
