package netfilter

import (
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
)

// This file renders rules to the text of iptables-save, in the form in which that lists them,
// so that a rule that is read back compares equal. No other file knows that text, but for
// parse.go.

// headOrder are the options that iptables-save prints before all others, in its order.
var headOrder = []string{"-s", "-d", "-i", "-p"}

// protocolNames are those of iptables-save.
var protocolNames = map[Protocol]string{ICMP: "icmp", TCP: "tcp", UDP: "udp", ICMPv6: "ipv6-icmp", SCTP: "sctp"}

// String returns the name of the protocol as iptables-save prints it.
func (p Protocol) String() string {
	if name, ok := protocolNames[p]; ok {
		return name
	}
	return strconv.Itoa(int(p))
}

// writer renders rules of a family, one a line.
type writer struct {
	family rules.Family
	text   []byte
	begun  bool // whether the current line has a word
}

// words adds words to the line.
func (w *writer) words(list ...string) {
	for _, word := range list {
		if w.begun {
			w.text = append(w.text, ' ')
		}
		w.text, w.begun = append(w.text, word...), true
	}
}

// number adds a number to the last word, behind what separates it.
func (w *writer) number(separator string, n int) {
	w.text = strconv.AppendInt(append(w.text, separator...), int64(n), 10)
}

// rule adds a line.
func (w *writer) rule(r Rule) {
	if len(w.text) > 0 {
		w.text = append(w.text, '\n')
	}
	w.begun = false
	for _, letter := range headOrder {
		for _, m := range r.Match {
			w.head(letter, m)
		}
	}
	for _, m := range r.Match {
		w.extension(m)
	}
	if r.Target != nil {
		w.target(r.Target)
	}
}

// plain returns a condition without its negation.
func plain(m Match) (condition Match, not bool) {
	if n, ok := m.(Not); ok {
		return n.Match, true
	}
	return m, false
}

// head adds a condition that needs no extension, if this is its option.
func (w *writer) head(letter string, m Match) {
	condition, not := plain(m)
	option, value := headOption(condition, letter)
	if option != letter {
		return
	}
	if not {
		w.words("!")
	}
	w.words(option, value)
}

// headOption returns the option of a condition that needs no extension. It spells the value of
// the option that is asked for.
func headOption(m Match, asked string) (option, value string) {
	switch m := m.(type) {
	case Source:
		option = "-s"
		if asked == option {
			value = netip.Prefix(m).String()
		}
	case Destination:
		option = "-d"
		if asked == option {
			value = netip.Prefix(m).String()
		}
	case Input:
		option, value = "-i", m.Name
		if m.Prefix {
			value += "+"
		}
	case Protocol:
		option, value = "-p", m.String()
	}
	return option, value
}

// extension adds a condition that an extension tests.
func (w *writer) extension(m Match) {
	condition, not := plain(m)
	if option, _ := headOption(condition, ""); option != "" {
		return
	}
	if known, ok := condition.(Unknown); ok {
		w.words(string(known))
		return
	}
	w.words("-m", w.extensionName(condition))
	if not {
		w.words("!")
	}
	w.options(condition)
}

// extensionName is the name of what tests a condition.
func (w *writer) extensionName(m Match) string {
	switch m := m.(type) {
	case Comment:
		return "comment"
	case InSet:
		return "set"
	case State:
		return "conntrack"
	case Local:
		return "addrtype"
	case Mark:
		return "mark"
	case OneIn:
		return "statistic"
	case Seen, Remember:
		return "recent"
	case DestinationPort:
		return m.Protocol.String()
	case TCPFlags:
		return TCP.String()
	case SegmentSize:
		return "tcpmss"
	case ICMPType:
		if w.family == rules.IPv6 {
			return "icmp6"
		}
		return "icmp"
	}
	panic("netfilter: a condition without a text")
}

// options adds those of a condition.
func (w *writer) options(m Match) {
	switch m := m.(type) {
	case Comment:
		w.words("--comment", rules.Quote(string(m)))
	case InSet:
		w.words("--match-set", m.Name, m.By.String())
	case State:
		w.words("--ctstate", m.String())
	case Local:
		w.words("--"+directionNames[Direction(m)]+"-type", "LOCAL")
	case Mark:
		w.words("--mark", hex(m.Value)+"/"+hex(m.Mask))
	case OneIn:
		w.words("--mode", "random", "--probability", probability(int(m)))
	case Seen:
		w.words("--rcheck", "--seconds")
		w.number(" ", int(m.Within/time.Second))
		w.words("--reap")
		w.recent(m.List)
	case Remember:
		w.words("--set")
		w.recent(m.List)
	default:
		w.transport(m)
	}
}

func (w *writer) recent(list string) {
	w.words("--name", list, "--mask", fullMask(w.family), "--rsource")
}

// transport adds the options of a condition on what is above IP.
func (w *writer) transport(m Match) {
	switch m := m.(type) {
	case DestinationPort:
		if m.Port != 0 {
			w.words("--dport")
			w.number(" ", int(m.Port))
		}
	case TCPFlags:
		w.words("--tcp-flags", m.Of.String(), m.Set.String())
	case SegmentSize:
		w.words("--mss")
		w.number(" ", int(m.From))
		w.number(":", int(m.To))
	case ICMPType:
		w.words(map[rules.Family]string{rules.IPv4: "--icmp-type", rules.IPv6: "--icmpv6-type"}[w.family])
		w.number(" ", int(m))
	}
}

func hex(n uint32) string { return "0x" + strconv.FormatUint(uint64(n), 16) }

// probability is one in n, as iptables-save prints what the kernel keeps of it in 31 bits.
func probability(n int) string {
	kept := (1<<31 + n/2) / n
	return strconv.FormatFloat(float64(kept)/(1<<31), 'f', 11, 64)
}

// fullMask is the mask of a single address as iptables-save prints it.
func fullMask(f rules.Family) string {
	if f == rules.IPv6 {
		return "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"
	}
	return "255.255.255.255"
}

// directionNames are those of matches of sets.
var directionNames = map[Direction]string{Src: "src", Dst: "dst"}

// String returns the directions with commas between them.
func (d Fields) String() string {
	var out []string
	for _, one := range d {
		if one != 0 {
			out = append(out, directionNames[one])
		}
	}
	return strings.Join(out, ",")
}

// stateNames has the states in the order of their bits, which is that of iptables-save.
var stateNames = []string{"INVALID", "NEW", "RELATED", "ESTABLISHED", "UNTRACKED", "SNAT", "DNAT"}

// String returns the states with commas between them.
func (s State) String() string { return bits(uint8(s), stateNames) }

// flagNames has the flags of TCP in the order of their bits.
var flagNames = []string{"FIN", "SYN", "RST", "PSH", "ACK", "URG"}

// String returns the flags with commas between them.
func (t TCPFlag) String() string { return bits(uint8(t), flagNames) }

func bits(set uint8, names []string) string {
	var out []string
	for i, name := range names {
		if set&(1<<i) != 0 {
			out = append(out, name)
		}
	}
	return strings.Join(out, ",")
}

// verdictNames are those of iptables.
var verdictNames = map[Verdict]string{Accept: "ACCEPT", Drop: "DROP", Return: "RETURN"}

const reject = "REJECT"

// rejectWith is the option by which a family answers that a port is unreachable.
func rejectWith(f rules.Family) string {
	if f == rules.IPv6 {
		return "icmp6-port-unreachable"
	}
	return "icmp-port-unreachable"
}

// target adds a target with its options.
func (w *writer) target(t Target) {
	switch t := t.(type) {
	case JumpTo:
		w.words("-j", string(t))
	case Verdict:
		w.words("-j", verdictNames[t])
	case Reject:
		w.words("-j", reject, "--reject-with", rejectWith(w.family))
	case SetMark:
		w.words("-j", "MARK", "--set-xmark", hex(t.Value)+"/"+hex(t.Mask))
	case DNAT:
		w.words("-j", "DNAT", "--to-destination", netip.AddrPort(t).String())
	case SNAT:
		w.snat(t)
	case SetSegmentSize:
		w.words("-j", "TCPMSS", "--set-mss")
		w.number(" ", int(t))
	case UnknownTarget:
		w.words(string(t))
	default:
		panic("netfilter: a target without a text")
	}
}

func (w *writer) snat(t SNAT) {
	w.words("-j", "MASQUERADE")
	if t.Ports != (PortRange{}) {
		w.words("--to-ports")
		w.number(" ", int(t.Ports.First))
		w.number("-", int(t.Ports.Last))
	}
	if t.Random {
		w.words("--random-fully")
	}
}

// text renders rules, one a line.
func text(f rules.Family, list ...Rule) string {
	w := writer{family: f, text: make([]byte, 0, 128*len(list))}
	for _, r := range list {
		w.rule(r)
	}
	return string(w.text)
}
