package rules

import (
	"net/netip"
	"slices"
	"strings"
)

// Canonical returns rules (one a line, without "-A CHAIN") in the form that iptables-save prints.
// Addresses, interfaces and protocol come first, then the matches in their order, then the target;
// every value is spelled as the tools of both backends spell it. A rule it cannot take apart comes
// back with its spaces trimmed and nothing else changed, so it still compares. One that matches
// everything and does nothing is left out.
func Canonical(f Family, rules string) string {
	var out []string
	for line := range strings.Lines(rules) {
		if line = trim(line); line != "" {
			line = canonicalRule(f, line)
		}
		if line != "" {
			out = append(out, line)
		}
	}
	return strings.Join(out, "\n")
}

func canonicalRule(f Family, text string) string {
	p, ok := parseRule(f, text)
	if !ok {
		return text
	}
	return p.String()
}

// parsed is a rule taken apart. head holds the built-in matches by option
// letter with their negation in front of the letter.
type parsed struct {
	head    map[string][]string
	matches []extension
	target  extension // name "" when the rule has no target
	jump    string    // "-j" or "-g"
}

// headOrder is the order in which iptables-save prints the built-in matches.
var headOrder = []string{"-s", "-d", "-i", "-o", "-p", "-f"}

// headNames maps every spelling of a built-in match to its option letter.
var headNames = map[string]string{
	"-s": "-s", "--src": "-s", "--source": "-s",
	"-d": "-d", "--dst": "-d", "--destination": "-d",
	"-i": "-i", "--in-interface": "-i", "-o": "-o", "--out-interface": "-o",
	"-p": "-p", "--proto": "-p", "--protocol": "-p", "-f": "-f", "--fragment": "-f",
}

var jumpNames = map[string]string{"-j": "-j", "--jump": "-j", "-g": "-g", "--goto": "-g"}

// Targets lists the targets and chains that rules (one a line) end in, in
// order, repeated ones included.
func Targets(rules string) []string {
	var out []string
	for line := range strings.Lines(rules) {
		if p, ok := parseRule(IPv4, trim(line)); ok && p.target.name != "" {
			out = append(out, p.target.name)
		}
	}
	return out
}

func countLines(rules string) int {
	n := 0
	for line := range strings.Lines(rules) {
		if trim(line) != "" {
			n++
		}
	}
	return n
}

func parseRule(f Family, text string) (parsed, bool) {
	words, ok := split(text)
	if !ok {
		return parsed{}, false
	}
	p := ruleParser{family: f, words: words}
	p.rule.head = map[string][]string{}
	for len(p.words) > 0 {
		if !p.step() {
			return parsed{}, false
		}
	}
	p.rule.finish(f)
	return p.rule, true
}

func (r *parsed) finish(f Family) {
	for i := range r.matches {
		r.matches[i].normalise(f, matchRules)
	}
	r.target.normalise(f, targetRules)
}

// String prints the rule the way iptables-save does.
func (r parsed) String() string {
	var out []string
	for _, letter := range headOrder {
		out = append(out, r.head[letter]...)
	}
	for _, m := range r.matches {
		out = append(out, "-m", m.name)
		out = m.appendOptions(out)
	}
	if r.target.name != "" {
		out = append(out, r.jump, r.target.name)
		out = r.target.appendOptions(out)
	}
	return strings.Join(out, " ")
}

// headValue spells the argument of a built-in match; "" when it matches all.
func headValue(f Family, letter string, arg token) string {
	switch letter {
	case "-s", "-d":
		return address(f, arg.val)
	case "-p":
		return protocol(arg.val)
	}
	return arg.val
}

// address masks the host bits and adds the prefix length the tools print.
func address(f Family, s string) string {
	p, err := netip.ParsePrefix(s)
	if err != nil {
		a, err := netip.ParseAddr(s)
		if err != nil {
			return s
		}
		p = netip.PrefixFrom(a, a.BitLen())
	}
	if p.Bits() == 0 && p.Addr().Is4() == (f == IPv4) {
		return ""
	}
	return p.Masked().String()
}

// protocolNames lists what the tools print for numbers and aliases.
var protocolNames = map[string]string{
	"0": "", "all": "", "1": "icmp", "6": "tcp", "17": "udp", "58": "ipv6-icmp", "icmpv6": "ipv6-icmp",
	"132": "sctp", "136": "udplite", "50": "esp", "51": "ah",
}

func protocol(s string) string {
	s = strings.ToLower(s)
	if name, ok := protocolNames[s]; ok {
		return name
	}
	return s
}

// sortOptions orders options as listed; others keep their place behind.
func sortOptions(options []extOption, order []string) {
	rank := func(o extOption) int {
		if i := slices.Index(order, o.name); i >= 0 {
			return i
		}
		return len(order)
	}
	slices.SortStableFunc(options, func(a, b extOption) int { return rank(a) - rank(b) })
}
