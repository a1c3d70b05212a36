package rules

import "slices"

// Parts are a rule of iptables-save taken apart.
type Parts struct {
	Options []Option
	// Target is where it jumps to, or goes with Goto; "" for a rule that only counts.
	Target string
	Goto   bool
	// Of are the options of the target.
	Of []Option
}

// Option is one of a rule: "-s 10.0.0.0/8", or "--dport 80" of the match tcp.
type Option struct {
	// Match is the extension, "" for those that every rule has.
	Match, Name string
	Not         bool
	Args        []string
}

// Split takes one rule apart; false where it is not understood.
func Split(f Family, rule string) (Parts, bool) {
	p, ok := parseRule(f, rule)
	if !ok {
		return Parts{}, false
	}
	out := Parts{Target: p.target.name, Goto: p.jump == "-g", Of: optionsOf(p.target)}
	for name, words := range p.head {
		o := Option{Name: name, Not: words[0] == "!"}
		if last := words[len(words)-1]; last != name {
			o.Args = []string{last}
		}
		out.Options = append(out.Options, o)
	}
	slices.SortFunc(out.Options, func(a, b Option) int { return slices.Index(headOrder, a.Name) - slices.Index(headOrder, b.Name) })
	for _, m := range p.matches {
		if len(m.options) == 0 {
			out.Options = append(out.Options, Option{Match: m.name})
		}
		out.Options = append(out.Options, optionsOf(m)...)
	}
	return out, true
}

func optionsOf(e extension) []Option {
	var out []Option
	for _, o := range e.options {
		one := Option{Match: e.name, Name: o.name, Not: o.not}
		for _, a := range o.args {
			one.Args = append(one.Args, a.val)
		}
		out = append(out, one)
	}
	return out
}
