package netfilter

import (
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
)

// This file reads rules back from the text of iptables-save. A rule may be of another program:
// what this package has no type for becomes Unknown, and nothing is lost.

// parse reads one rule of a family.
func parse(f rules.Family, text string) Rule {
	parts, ok := rules.Split(f, text)
	if !ok {
		return Rule{Match: []Match{Unknown(text)}}
	}
	var r Rule
	for len(parts.Options) > 0 {
		group := sameExtension(parts.Options)
		parts.Options = parts.Options[len(group):]
		r.Match = append(r.Match, parseGroup(f, group)...)
	}
	if parts.Target != "" {
		r.Target = parseTarget(f, parts)
	}
	return r
}

// sameExtension returns the leading options of one extension, or one of none.
func sameExtension(options []rules.Option) []rules.Option {
	n := 1
	for n < len(options) && options[0].Match != "" && options[n].Match == options[0].Match {
		n++
	}
	return options[:n]
}

// wholeExtensions are read from all their options together.
var wholeExtensions = map[string]func(rules.Family, []rules.Option) Match{"recent": parseRecent, "statistic": parseOneIn}

// parseGroup reads the options of one extension.
func parseGroup(f rules.Family, group []rules.Option) []Match {
	if read, ok := wholeExtensions[group[0].Match]; ok {
		if m := read(f, group); m != nil {
			return []Match{m}
		}
		return []Match{unknown(group)}
	}
	out := make([]Match, len(group))
	for i, o := range group {
		m := parseOption(o)
		if m == nil {
			return []Match{unknown(group)}
		}
		if out[i] = m; o.Not {
			out[i] = Not{m}
		}
	}
	return out
}

// unknown spells options that this package has no type for.
func unknown(group []rules.Option) Unknown {
	var words []string
	if group[0].Match != "" {
		words = append(words, "-m", group[0].Match)
	}
	for _, o := range group {
		if o.Not {
			words = append(words, "!")
		}
		if o.Name != "" {
			words = append(words, o.Name)
		}
		words = append(words, o.Args...)
	}
	return Unknown(strings.Join(words, " "))
}

// parseOption reads one option without its negation; nil is unknown.
func parseOption(o rules.Option) Match {
	arg := ""
	if len(o.Args) > 0 {
		arg = o.Args[0]
	}
	switch o.Match {
	case "":
		return parseHead(o.Name, arg)
	case "comment":
		return Comment(arg)
	case "set":
		return parseSet(o)
	case "conntrack":
		return parseState(o.Name, arg)
	case "addrtype":
		return parseLocal(o.Name, arg)
	case "mark":
		return parseMark(o.Name, arg)
	}
	return parseTransport(o, arg)
}

func parseHead(letter, arg string) Match {
	switch letter {
	case "-s", "-d":
		p, err := netip.ParsePrefix(arg)
		switch {
		case err != nil:
		case letter == "-s":
			return Source(p)
		default:
			return Destination(p)
		}
	case "-i":
		name, prefix := strings.CutSuffix(arg, "+")
		return Input{Name: name, Prefix: prefix}
	case "-p":
		if p, ok := protocolNamed(arg); ok {
			return p
		}
	}
	return nil
}

func protocolNamed(name string) (Protocol, bool) {
	for p, n := range protocolNames {
		if n == name {
			return p, true
		}
	}
	n, err := strconv.ParseUint(name, 10, 8)
	return Protocol(n), err == nil
}

func parseSet(o rules.Option) Match {
	if o.Name != "--match-set" || len(o.Args) != 2 {
		return nil
	}
	words := strings.Split(o.Args[1], ",")
	s := InSet{Name: o.Args[0]}
	if len(words) > len(s.By) {
		return nil
	}
	for i, w := range words {
		switch w {
		case directionNames[Src]:
			s.By[i] = Src
		case directionNames[Dst]:
			s.By[i] = Dst
		default:
			return nil
		}
	}
	return s
}

func parseState(option, arg string) Match {
	set, ok := parseBits(arg, stateNames)
	if option != "--ctstate" || !ok {
		return nil
	}
	return State(set)
}

func parseBits(arg string, names []string) (set uint8, ok bool) {
	for name := range strings.SplitSeq(arg, ",") {
		i := slices.Index(names, name)
		if i < 0 {
			return 0, false
		}
		set |= 1 << i
	}
	return set, true
}

func parseLocal(option, arg string) Match {
	switch {
	case arg != "LOCAL":
	case option == "--src-type":
		return Local(Src)
	case option == "--dst-type":
		return Local(Dst)
	}
	return nil
}

func parseMark(option, arg string) Match {
	value, mask, ok := parseValueMask(arg)
	if option != "--mark" || !ok {
		return nil
	}
	return Mark{value, mask}
}

func parseValueMask(arg string) (value, mask uint32, ok bool) {
	v, m, found := strings.Cut(arg, "/")
	if !found {
		m = "0xffffffff"
	}
	n, err := strconv.ParseUint(v, 0, 32)
	k, wrong := strconv.ParseUint(m, 0, 32)
	return uint32(n), uint32(k), err == nil && wrong == nil
}

// parseTransport reads conditions on what is above IP.
func parseTransport(o rules.Option, arg string) Match {
	switch o.Match {
	case "tcp", "udp", "sctp":
		return parsePorts(o, arg)
	case "icmp", "icmp6":
		n, err := strconv.ParseUint(arg, 10, 8)
		if err == nil && (o.Name == "--icmp-type" || o.Name == "--icmpv6-type") {
			return ICMPType(n)
		}
	case "tcpmss":
		from, to, ok := parseRange(arg, ":")
		if ok && o.Name == "--mss" {
			return SegmentSize{from, to}
		}
	}
	return nil
}

func parsePorts(o rules.Option, arg string) Match {
	protocol, _ := protocolNamed(o.Match)
	switch o.Name {
	case "":
		return DestinationPort{Protocol: protocol}
	case "--dport":
		if n, err := strconv.ParseUint(arg, 10, 16); err == nil && n > 0 {
			return DestinationPort{protocol, uint16(n)}
		}
	case "--tcp-flags":
		if len(o.Args) != 2 {
			return nil
		}
		of, known := parseBits(o.Args[0], flagNames)
		set, all := parseBits(o.Args[1], flagNames)
		if known && all {
			return TCPFlags{TCPFlag(of), TCPFlag(set)}
		}
	}
	return nil
}

func parseRange(arg, between string) (from, to uint16, ok bool) {
	a, b, found := strings.Cut(arg, between)
	n, err := strconv.ParseUint(a, 10, 16)
	k, wrong := strconv.ParseUint(b, 10, 16)
	return uint16(n), uint16(k), found && err == nil && wrong == nil
}

// parseOneIn reads a probability that is one in n.
func parseOneIn(_ rules.Family, group []rules.Option) Match {
	if len(group) != 2 || group[0].Name != "--mode" || group[1].Name != "--probability" || len(group[1].Args) != 1 {
		return nil
	}
	p, err := strconv.ParseFloat(group[1].Args[0], 64)
	if err != nil || p <= 0 || p > 1 {
		return nil
	}
	if n := int(math.Round(1 / p)); probability(n) == group[1].Args[0] {
		return OneIn(n)
	}
	return nil
}

// parseRecent reads the two forms that rules of ours have.
func parseRecent(f rules.Family, group []rules.Option) Match {
	values := map[string]string{}
	for _, o := range group {
		if o.Not {
			return nil
		}
		values[o.Name] = strings.Join(o.Args, " ")
	}
	has := func(names ...string) bool {
		all := append(names, "--name", "--mask", "--rsource")
		return len(values) == len(all) && values["--mask"] == fullMask(f) &&
			!slices.ContainsFunc(all, func(n string) bool { _, there := values[n]; return !there })
	}
	switch {
	case has("--set"):
		return Remember{values["--name"]}
	case has("--rcheck", "--seconds", "--reap"):
		if n, err := strconv.Atoi(values["--seconds"]); err == nil {
			return Seen{values["--name"], time.Duration(n) * time.Second}
		}
	}
	return nil
}

// parseTarget reads where a rule leads.
func parseTarget(f rules.Family, p rules.Parts) Target {
	if t := parseAction(f, p); t != nil {
		return t
	}
	verb := "-j "
	if p.Goto {
		verb = "-g "
	}
	words := []string{verb + p.Target}
	for _, o := range p.Of {
		words = append(append(words, o.Name), o.Args...)
	}
	return UnknownTarget(strings.Join(words, " "))
}

// parseAction reads the targets that rules of ours have; nil is another one.
func parseAction(f rules.Family, p rules.Parts) Target {
	name, arg := firstOption(p.Of)
	switch p.Target {
	case "MARK":
		if value, mask, ok := parseValueMask(arg); ok && name == "--set-xmark" {
			return SetMark{value, mask}
		}
	case "DNAT":
		if to, err := netip.ParseAddrPort(arg); err == nil && name == "--to-destination" && len(p.Of) == 1 {
			return DNAT(to)
		}
	case reject:
		if name == "--reject-with" && arg == rejectWith(f) {
			return Reject{}
		}
	case "MASQUERADE":
		return parseSNAT(p.Of)
	case "TCPMSS":
		if n, err := strconv.ParseUint(arg, 10, 16); err == nil && name == "--set-mss" {
			return SetSegmentSize(n)
		}
	default:
		return parseJump(p)
	}
	return nil
}

// parseJump reads a target without options: a verdict or a chain.
func parseJump(p rules.Parts) Target {
	if p.Goto || len(p.Of) > 0 {
		return nil
	}
	for v, name := range verdictNames {
		if name == p.Target {
			return v
		}
	}
	return JumpTo(p.Target)
}

func firstOption(of []rules.Option) (name, arg string) {
	if len(of) == 0 {
		return "", ""
	}
	if len(of[0].Args) > 0 {
		arg = of[0].Args[0]
	}
	return of[0].Name, arg
}

func parseSNAT(of []rules.Option) Target {
	var t SNAT
	for _, o := range of {
		switch o.Name {
		case "--random-fully":
			t.Random = true
		case "--to-ports":
			first, last, ok := parseRange(strings.Join(o.Args, ""), "-")
			if !ok {
				return nil
			}
			t.Ports = PortRange{first, last}
		default:
			return nil
		}
	}
	return t
}

// jumpsTo finds the chain or target that a rule leads to without reading all of it: a listing
// has hundreds of thousands of rules.
func jumpsTo(text string) string {
	const jump = "-j "
	at := strings.LastIndex(text, jump)
	if at < 0 || at > 0 && text[at-1] != ' ' {
		return ""
	}
	name, _, _ := strings.Cut(text[at+len(jump):], " ")
	return name
}
