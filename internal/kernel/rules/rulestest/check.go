package rulestest

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
)

// checkRule refuses one rule in canonical form for the reasons of the tools and the kernel; there
// reports whether a user chain of the table exists.
func checkRule(f rules.Family, table, rule string, there func(chain string) bool) error {
	words := rules.Words(rule)
	c := ruleCheck{family: f, table: table, there: there, seen: map[string]string{}}
	for len(words) > 0 {
		if words[0] == "!" {
			words = words[1:]
			continue
		}
		o, ok := ruleOptions[words[0]]
		switch {
		case !ok && strings.HasPrefix(words[0], "-"):
			return fmt.Errorf("unknown option %q in %q: %w", words[0], rule, rules.ErrUnsupported)
		case !ok:
			return fmt.Errorf("bad argument %q in %q", words[0], rule)
		case len(words) <= o.args:
			return fmt.Errorf("option %s needs %d words in %q", words[0], o.args, rule)
		}
		args := words[1 : 1+o.args]
		if o.check != nil {
			if err := o.check(&c, args); err != nil {
				return fmt.Errorf("%s %s in %q: %w", words[0], strings.Join(args, " "), rule, err)
			}
		}
		c.seen[words[0]] = strings.Join(args, " ")
		words = words[1+o.args:]
	}
	return c.finish(rule)
}

// ruleCheck is a rule being read; seen maps its options to their values.
type ruleCheck struct {
	family rules.Family
	table  string
	there  func(string) bool
	seen   map[string]string
}

// ruleOption is one option with the number of words that follow it. A nil
// check accepts any.
type ruleOption struct {
	args  int
	check func(*ruleCheck, []string) error
}

// ruleOptions has every option of the matches and targets we know.
var ruleOptions = map[string]ruleOption{
	"-s": {1, (*ruleCheck).address}, "-d": {1, (*ruleCheck).address}, "-i": {1, nil}, "-o": {1, nil},
	"-p": {1, oneOf(protocols)}, "-m": {1, (*ruleCheck).match}, "-j": {1, (*ruleCheck).target}, "-g": {1, (*ruleCheck).target},
	"--comment": {1, nil}, "--mark": {1, nil}, "--match-set": {2, (*ruleCheck).set},
	"--ctstate": {1, oneOf("INVALID NEW RELATED ESTABLISHED UNTRACKED SNAT DNAT")},
	"--state":   {1, oneOf("INVALID NEW RELATED ESTABLISHED UNTRACKED")}, "--ctdir": {1, oneOf("ORIGINAL REPLY")},
	"--src-type": {1, oneOf(addressTypes)}, "--dst-type": {1, oneOf(addressTypes)},
	"--sport": {1, (*ruleCheck).ports}, "--dport": {1, (*ruleCheck).ports}, "--sports": {1, nil}, "--dports": {1, nil},
	"--tcp-flags": {2, nil}, "--icmp-type": {1, nil}, "--icmpv6-type": {1, nil},
	"--physdev-is-in": {}, "--physdev-is-out": {}, "--physdev-is-bridged": {},
	"--mode": {1, oneOf("random nth")}, "--probability": {1, nil}, "--every": {1, nil}, "--packet": {1, nil},
	"--set": {}, "--rcheck": {}, "--update": {}, "--remove": {}, "--reap": {}, "--rsource": {}, "--rdest": {},
	"--seconds": {1, nil}, "--hitcount": {1, nil}, "--name": {1, nil}, "--mask": {1, nil},
	"--ipvs": {}, "--vproto": {1, nil}, "--vaddr": {1, nil}, "--vport": {1, nil}, "--vdir": {1, nil}, "--vmethod": {1, nil}, "--vportctl": {1, nil},
	"--limit": {1, nil}, "--limit-burst": {1, nil}, "--log-prefix": {1, nil}, "--log-level": {1, nil},
	"--mss": {1, nil}, "--set-mss": {1, nil},
	"--set-xmark": {1, nil}, "--save-mark": {}, "--restore-mark": {}, "--nfmask": {1, nil}, "--ctmask": {1, nil},
	"--reject-with": {1, nil}, "--random": {}, "--random-fully": {}, "--persistent": {},
	"--to-destination": {1, (*ruleCheck).translation}, "--to-source": {1, (*ruleCheck).translation}, "--to-ports": {1, (*ruleCheck).ports},
	"--on-port": {1, nil}, "--on-ip": {1, nil}, "--tproxy-mark": {1, nil}, "--notrack": {}, "--nflog-group": {1, nil}, "--nflog-prefix": {1, nil},
}

const (
	protocols    = "tcp udp sctp dccp udplite icmp ipv6-icmp esp ah"
	addressTypes = "UNSPEC UNICAST LOCAL BROADCAST ANYCAST MULTICAST BLACKHOLE UNREACHABLE PROHIBIT"
	matches      = "comment mark set conntrack state addrtype physdev statistic recent ipvs limit multiport icmp icmp6 connmark tcpmss"
	withPorts    = "tcp udp sctp dccp udplite"
)

// placed lists the targets that are not chains with the tables that take
// them: nat is not for filtering, and only it translates.
var placed = map[string]string{
	"ACCEPT": "filter nat mangle raw", "RETURN": "filter nat mangle raw", "DROP": "filter mangle raw", "REJECT": "filter",
	"MARK": "filter nat mangle raw", "CONNMARK": "filter nat mangle raw", "LOG": "filter nat mangle raw", "NFLOG": "filter nat mangle raw",
	"MASQUERADE": "nat", "DNAT": "nat", "SNAT": "nat", "REDIRECT": "nat", "TPROXY": "mangle", "TCPMSS": "mangle filter", "NOTRACK": "raw", "CT": "raw",
}

func among(list, word string) bool { return slices.Contains(strings.Fields(list), word) }

// oneOf accepts a comma list of the given words.
func oneOf(list string) func(*ruleCheck, []string) error {
	return func(_ *ruleCheck, args []string) error {
		for word := range strings.SplitSeq(args[0], ",") {
			if !among(list, word) {
				return fmt.Errorf("%q is none of %s", word, list)
			}
		}
		return nil
	}
}

// fits: addresses of the other family are taken for names of hosts.
func (c *ruleCheck) fits(a netip.Addr) error {
	if a.Is4() != (c.family == rules.IPv4) {
		return fmt.Errorf("host %s not found", a)
	}
	return nil
}

func (c *ruleCheck) address(args []string) error {
	p, err := netip.ParsePrefix(args[0])
	if err != nil {
		return err
	}
	return c.fits(p.Addr())
}

// match: that of a protocol with ports wants the protocol, too.
func (c *ruleCheck) match(args []string) error {
	switch name := args[0]; {
	case among(withPorts, name) && c.seen["-p"] != name:
		return fmt.Errorf("match requires -p %s", name)
	case !among(withPorts, name) && !among(matches, name):
		return rules.ErrUnsupported
	}
	return nil
}

func (c *ruleCheck) target(args []string) error {
	tables, extension := placed[args[0]]
	switch {
	case extension && !among(tables, c.table):
		return fmt.Errorf("not in table %s", c.table)
	case !extension && !c.there(args[0]):
		return rules.ErrNotExist
	}
	return nil
}

func (c *ruleCheck) set(args []string) error {
	return oneOf("src dst")(c, args[1:])
}

// ports accepts "80", "80:90" and "80-90".
func (c *ruleCheck) ports(args []string) error {
	if !among(withPorts, c.seen["-p"]) {
		return fmt.Errorf("ports of protocol %q", c.seen["-p"])
	}
	for _, port := range strings.FieldsFunc(args[0], func(r rune) bool { return r == ':' || r == '-' }) {
		if _, err := strconv.ParseUint(port, 10, 16); err != nil {
			return err
		}
	}
	return nil
}

// translation accepts an address, with a port where the protocol has ports.
func (c *ruleCheck) translation(args []string) error {
	if a, err := netip.ParseAddr(args[0]); err == nil {
		return c.fits(a)
	}
	a, err := netip.ParseAddrPort(args[0])
	if err != nil {
		return err
	}
	if !among(withPorts, c.seen["-p"]) {
		return fmt.Errorf("port of protocol %q", c.seen["-p"])
	}
	return c.fits(a.Addr())
}

// checkLinks: where a packet has no link yet, or no more, a rule right in the
// hook may not ask for it; one in a chain under it may.
func checkLinks(hook, rule string) error {
	words := rules.Words(rule)
	for option, hooks := range map[string]string{"-i": "OUTPUT POSTROUTING", "-o": "PREROUTING INPUT"} {
		if among(hooks, hook) && slices.Contains(words, option) {
			return fmt.Errorf("can't use %s with %s", option, hook)
		}
	}
	return nil
}

// finish looks for what is missing at the end.
func (c *ruleCheck) finish(rule string) error {
	for target, option := range map[string]string{"DNAT": "--to-destination", "SNAT": "--to-source"} {
		if _, ok := c.seen[option]; c.seen["-j"] == target && !ok {
			return fmt.Errorf("%s without %s in %q", target, option, rule)
		}
	}
	return nil
}
