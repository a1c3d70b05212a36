package netfilter

import "slices"

// A Rule is one rule of a chain: a packet that meets all conditions goes to the target.
type Rule struct {
	// Match are the conditions in the order in which the kernel tests them. A Comment is one
	// of them: every packet meets it, and its place is a part of what the kernel lists.
	Match []Match
	// Target is nil in a rule that only counts.
	Target Target
}

// If returns a rule without a target.
func If(conditions ...Match) Rule {
	r := Rule{Match: make([]Match, 0, len(conditions)+1)}
	for _, m := range conditions {
		if list, ok := m.(All); ok {
			r.Match = append(r.Match, list...)
		} else if m != nil {
			r.Match = append(r.Match, m)
		}
	}
	return r
}

// Then returns the rule with a target.
func (r Rule) Then(t Target) Rule {
	r.Target = t
	return r
}

// Always returns a rule that all packets match.
func Always(t Target) Rule { return Rule{Target: t} }

// Equal reports whether two rules do the same in the same order.
func (r Rule) Equal(o Rule) bool { return r.Target == o.Target && slices.Equal(r.Match, o.Match) }

// Has reports whether a condition is one of the rule's.
func (r Rule) Has(m Match) bool { return slices.Contains(r.Match, m) }

// Comment returns the text of the first comment.
func (r Rule) Comment() string {
	for _, m := range r.Match {
		if c, ok := m.(Comment); ok {
			return string(c)
		}
	}
	return ""
}

// Sets lists the names of the sets that the rule refers to.
func (r Rule) Sets() []string {
	var out []string
	for _, m := range r.Match {
		if not, ok := m.(Not); ok {
			m = not.Match
		}
		if s, ok := m.(InSet); ok {
			out = append(out, s.Name)
		}
	}
	return out
}

// JumpsTo returns the chain that the rule leads to; empty for another target.
func (r Rule) JumpsTo() string {
	to, _ := r.Target.(JumpTo)
	return string(to)
}
