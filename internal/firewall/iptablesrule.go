package firewall

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
)

// This file evaluates rules of iptables, as iptables-save prints them.

// line is a rule of iptables.
type line struct {
	family rules.Family
	rule   string
	parts  rules.Parts
	// clear: the rule was understood.
	clear bool
}

func newLine(f rules.Family, rule string) line {
	l := line{family: f, rule: rule}
	l.parts, l.clear = rules.Split(f, rule)
	return l
}

func (l line) handle() uint64 { return 0 }
func (l line) text() string   { return l.rule }

func (l line) meet(p Packet) effect {
	if !l.clear {
		return effect{match: Maybe, ends: []end{{outcome: anything, word: l.rule}}}
	}
	out := effect{match: Yes}
	for _, o := range l.parts.Options {
		t := matches(o, p)
		if o.Not {
			t = -t
		}
		if out.match = out.match.and(t); out.match == No {
			return out
		}
	}
	out.ends = l.ends(p)
	return out
}

// ourAccept accepts what comes to a Service in ipvs mode, and ourForward is judged by its rules.
// Other chains of Kubernetes treat a packet according to its Service, and other packages report on
// them.
const (
	ourPrefix  = "KUBE-"
	ourAccept  = "KUBE-IPVS-ACCEPT"
	ourForward = "KUBE-FORWARD"
	ourRanges  = "KUBE-PROXY-FIREWALL"
)

// ours is the effect of a chain of Kubernetes on a packet to a Service; false for another chain.
func ours(chain string, p Packet) (outcome, bool) {
	switch {
	case chain == ourAccept && p.Hook == "input":
		return accepts, true
	case strings.HasPrefix(chain, ourPrefix) && chain != ourForward:
		return passes, true
	}
	return 0, false
}

func (l line) ends(p Packet) []end {
	to := l.parts.Target
	if o, is := ours(to, p); is {
		return []end{{outcome: o, word: to}}
	}
	switch o, known := targets[to]; {
	case to == "":
		return []end{{outcome: passes}}
	case to == "RETURN":
		return []end{{outcome: returns}}
	case known:
		return []end{{outcome: o, word: to}}
	}
	return []end{{chain: to, jump: !l.parts.Goto}}
}

// matches judges one option, without its negation.
func matches(o rules.Option, p Packet) Tri {
	arg := ""
	if len(o.Args) > 0 {
		arg = o.Args[0]
	}
	switch o.Match {
	case "":
		return matchesHead(o.Name, arg, p)
	case "comment":
		return Yes
	case "tcp", "udp", "sctp":
		switch o.Name {
		case "":
			return Yes // the protocol is an option of its own
		case "--dport":
			return inPorts(p.Port, []string{arg})
		}
	case "multiport":
		if o.Name == "--dports" {
			return inPorts(p.Port, strings.Split(arg, ","))
		}
	case "conntrack", "state":
		if o.Name == "--ctstate" || o.Name == "--state" {
			return inStates(strings.Split(arg, ","), p)
		}
	case "addrtype":
		if o.Name == "--dst-type" && p.Hook == "input" && arg == "LOCAL" {
			return Yes
		}
	}
	return Maybe
}

func matchesHead(name, arg string, p Packet) Tri {
	switch name {
	case "-s":
		return inPrefix(p.Source, arg)
	case "-d":
		return inPrefix(p.Dest, arg)
	case "-p":
		return triOf(arg == strconv.Itoa(int(p.Protocol)) || arg == protocolNames[p.Protocol] || arg == "all")
	case "-i", "-o":
		if arg == "lo" {
			return No
		}
	case "-f":
		return No
	}
	return Maybe
}

var protocolNames = map[uint8]string{tcp: "tcp", udp: "udp", sctp: "sctp"}

func inPrefix(a netip.Addr, text string) Tri {
	p, err := netip.ParsePrefix(text)
	if err != nil {
		one, err := netip.ParseAddr(text)
		if err != nil {
			return Maybe
		}
		p = netip.PrefixFrom(one, one.BitLen())
	}
	if !a.IsValid() {
		return Maybe
	}
	return triOf(p.Contains(a))
}

// inPorts: each is a port, or a range of them with a colon.
func inPorts(port uint16, list []string) Tri {
	if port == 0 {
		return Maybe
	}
	for _, one := range list {
		first, last, ranged := strings.Cut(one, ":")
		if !ranged {
			last = first
		}
		a, err := strconv.ParseUint(first, 10, 16)
		b, failed := strconv.ParseUint(last, 10, 16)
		if err != nil || failed != nil {
			return Maybe
		}
		if uint64(port) >= a && uint64(port) <= b {
			return Yes
		}
	}
	return No
}

func inStates(list []string, p Packet) Tri {
	state := map[State]string{New: "NEW", Reply: "ESTABLISHED"}[p.State]
	switch {
	case slices.Contains(list, state):
		return Yes
	case slices.Contains(list, "DNAT") && p.DNAT != No:
		return p.DNAT
	case slices.Contains(list, "SNAT"):
		return Maybe
	}
	return No
}
