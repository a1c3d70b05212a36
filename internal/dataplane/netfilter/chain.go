package netfilter

import (
	"fmt"
	"io"
	"iter"
	"strings"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// ChainKey names a chain, and JumpKey a jump from a chain of the kernel to one.
type (
	ChainKey = rules.ChainKey
	JumpKey  = rules.JumpKey
)

// Nat and Filter return the key of a chain in these tables.
func Nat(f model.Family, name string) ChainKey { return Key(f, "nat", name) }

// Filter returns the key of a chain in the filter table.
func Filter(f model.Family, name string) ChainKey { return Key(f, "filter", name) }

// Key returns the key of a chain.
func Key(f model.Family, table, name string) ChainKey {
	return ChainKey{Family: f, Table: table, Name: name}
}

// A Line is one rule as tables keep it: two lines of a family are equal if their rules are. It
// is the text of iptables-save, which is a fifth of the size of a Rule.
type Line struct{ text string }

// A Chain is the content of a chain: its lines in order.
type Chain struct{ text string }

// A Jump is the condition of a jump: the part of a Rule before its target.
type Jump struct{ text string }

// NewLine encodes a rule of a family.
func NewLine(f rules.Family, r Rule) Line { return Line{text(f, r)} }

// NewChain encodes rules of a family.
func NewChain(f rules.Family, list ...Rule) Chain { return Chain{text(f, list...)} }

// ChainOf joins lines of one family.
func ChainOf(lines []Line) Chain {
	var b strings.Builder
	for i, l := range lines {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(l.text)
	}
	return Chain{b.String()}
}

// String returns the lines as kernel/rules has them, one a line.
func (c Chain) String() string { return c.text }

// Lines goes over the lines of a chain.
func (c Chain) Lines() iter.Seq[Line] {
	return func(yield func(Line) bool) {
		if c.text == "" {
			return
		}
		for line := range strings.SplitSeq(c.text, "\n") {
			if !yield(Line{line}) {
				return
			}
		}
	}
}

// Rules goes over the rules of a chain of a family.
func (c Chain) Rules(f rules.Family) iter.Seq[Rule] {
	return func(yield func(Rule) bool) {
		for l := range c.Lines() {
			if !yield(l.Rule(f)) {
				return
			}
		}
	}
}

// Then returns the chain with the lines of another one behind its own.
func (c Chain) Then(more Chain) Chain {
	if c.text == "" || more.text == "" {
		return Chain{c.text + more.text}
	}
	return Chain{c.text + "\n" + more.text}
}

// RefersTo reports whether a rule of the chain matches a set.
func (c Chain) RefersTo(f rules.Family, set string) bool {
	if !strings.Contains(c.text, set) {
		return false
	}
	for r := range c.Rules(f) {
		for _, name := range r.Sets() {
			if name == set {
				return true
			}
		}
	}
	return false
}

// Rule reads the rule of a family back.
func (l Line) Rule(f rules.Family) Rule { return parse(f, l.text) }

// Refusal returns the rule if it drops packets or refuses them; other rules are not read.
func (l Line) Refusal(f rules.Family) (Rule, bool) {
	if to := l.JumpsTo(); to != verdictNames[Drop] && to != reject {
		return Rule{}, false
	}
	return l.Rule(f), true
}

// JumpsTo returns the chain, or the name of the verdict, that the line leads to; empty if none.
func (l Line) JumpsTo() string { return jumpsTo(l.text) }

// String returns the line as an operator knows it.
func (l Line) String() string { return l.text }

// Compare orders lines by their text.
func (l Line) Compare(o Line) int { return strings.Compare(l.text, o.text) }

// NewJump encodes the condition of a jump.
func NewJump(f rules.Family, conditions ...Match) Jump {
	return Jump{text(f, If(conditions...))}
}

// To returns the line of the jump to a chain.
func (j Jump) To(target string) Line { return Line{rules.Jump{Args: j.text}.Rule(target)} }

// ReadLine returns the line of a rule that was listed outside of a table.
func ReadLine(text string) Line { return Line{text} }

// ReadChain returns a chain that the kernel has.
func ReadChain(c rules.Chain) Chain { return Chain{c.Rules} }

// WriteSave prints chains and jumps as iptables-save does. The jumps of a hook are in the order
// in which packets meet them.
func WriteSave(w io.Writer, chains map[ChainKey]Chain, jumps map[JumpKey]Jump, order Jumps) error {
	if err := rules.WriteSave(w, listed(chains), listedJumps(jumps), order.CompareInHook); err != nil {
		return fmt.Errorf("print rules: %w", err)
	}
	return nil
}

func listed(chains map[ChainKey]Chain) map[ChainKey]rules.Chain {
	out := make(map[ChainKey]rules.Chain, len(chains))
	for k, c := range chains {
		out[k] = rules.Chain{Rules: c.text}
	}
	return out
}

func listedJumps(jumps map[JumpKey]Jump) map[JumpKey]rules.Jump {
	out := make(map[JumpKey]rules.Jump, len(jumps))
	for k, j := range jumps {
		out[k] = rules.Jump{Args: j.text}
	}
	return out
}
