package rules

import (
	"slices"
	"strings"
)

// Listing filters save text down to what is ours: chains the predicate
// accepts, and jumps to them from built-in chains.
type Listing struct {
	owned  func(ChainKey) bool
	Chains map[ChainKey]Chain
	Jumps  map[JumpKey]Jump
}

// NewListing starts an empty listing.
func NewListing(owned func(ChainKey) bool) *Listing {
	return &Listing{owned: owned, Chains: map[ChainKey]Chain{}, Jumps: map[JumpKey]Jump{}}
}

// Add takes over the tables of one family.
func (l *Listing) Add(f Family, tables []SaveTable) {
	for _, t := range tables {
		for _, c := range t.Chains {
			key := ChainKey{Family: f, Table: t.Name, Name: c.Name}
			switch {
			case c.Builtin():
				l.addJumps(key, c.Rules[:Reach(f, c.Rules)])
			case l.owned(key):
				l.Chains[key] = Chain{Rules: Canonical(f, strings.Join(c.Rules, "\n"))}
			}
		}
	}
}

// addJumps keeps the first of several jumps to one target: the kernel meets
// that one first.
func (l *Listing) addJumps(hook ChainKey, rules []string) {
	for _, rule := range rules {
		key, jump, ok := jumpOf(hook, rule)
		if !ok || !l.owned(ChainKey{Family: hook.Family, Table: hook.Table, Name: key.Target}) {
			continue
		}
		if _, known := l.Jumps[key]; !known {
			l.Jumps[key] = jump
		}
	}
}

// Reach is the number of leading rules of a built-in chain that a packet can meet. The last of them
// is a rule without a match whose target ends the way of every packet. A jump behind it has no
// effect, so it counts as missing.
func Reach(f Family, rules []string) int {
	for i, rule := range rules {
		if endsAll(f, rule) {
			return i + 1
		}
	}
	return len(rules)
}

// endsAll reports whether a rule of a built-in chain ends the way of every packet.
func endsAll(f Family, rule string) bool {
	if !strings.Contains(rule, "ACCEPT") && !strings.Contains(rule, "DROP") && !strings.Contains(rule, "REJECT") {
		return false
	}
	p, ok := parseRule(f, rule)
	if !ok || p.jump != "-j" || len(p.head) > 0 {
		return false
	}
	for _, m := range p.matches {
		if m.name != "comment" {
			return false
		}
	}
	return p.target.name == "ACCEPT" || p.target.name == "DROP" ||
		p.target.name == "REJECT" && !p.target.hasArgument("--reject-with", "tcp-reset")
}

// hasArgument reports whether the extension has the option with one argument of this value.
func (e *extension) hasArgument(name, value string) bool {
	return slices.ContainsFunc(e.options, func(o extOption) bool { return o.has(name) && o.args[0].val == value })
}

// jumpOf takes a rule of a built-in chain apart into its key and matches.
func jumpOf(hook ChainKey, rule string) (JumpKey, Jump, bool) {
	p, ok := parseRule(hook.Family, rule)
	if !ok || p.target.name == "" || p.jump != "-j" {
		return JumpKey{}, Jump{}, false
	}
	key := JumpKey{Family: hook.Family, Table: hook.Table, Hook: hook.Name, Target: p.target.name}
	p.target = extension{}
	return key, Jump{Args: p.String()}, true
}
