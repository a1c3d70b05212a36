package rulestest

import (
	"context"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
)

// Call names a method that can be made to fail.
type Call string

// The calls of a Fake that the kernel can refuse.
const (
	CallList        Call = "List"
	CallWrite       Call = "Write"
	CallWriteChains Call = "WriteChains"
	CallWriteJumps  Call = "WriteJumps"
	CallJumpsThere  Call = "JumpsThere"
	CallStamp       Call = "Stamp"
)

// RuleKey names a rule of a chain, in canonical form.
type RuleKey struct {
	Chain rules.ChainKey
	Rule  string
}

// Plan is the faults of a Fake. The zero Plan injects none.
type Plan struct {
	// FailNth maps a call to the number of the attempt that fails, counted
	// from 1 since the Fake was made.
	FailNth map[Call]int
	// FailAlways maps a call to the error of every attempt.
	FailAlways map[Call]error
	// FailChains, FailRules and FailJumps map a key to the error of its row.
	FailChains map[rules.ChainKey]error
	FailRules  map[RuleKey]error
	FailJumps  map[rules.JumpKey]error
	// DropChain and DropJump leave rows out of List.
	DropChain func(rules.ChainKey) bool
	DropJump  func(rules.JumpKey) bool
	// Hang makes a call wait for its context to end.
	Hang map[Call]bool

	calls map[Call]int
}

// begin counts the call and returns the fault that hits it as a whole.
func (p *Plan) begin(ctx context.Context, c Call) error {
	if p.calls == nil {
		p.calls = map[Call]int{}
	}
	p.calls[c]++
	if p.Hang[c] {
		<-ctx.Done()
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case p.FailAlways[c] != nil:
		return p.FailAlways[c]
	case p.FailNth[c] == p.calls[c]:
		return rules.ErrBusy
	}
	return nil
}

// Calls is how often a call was made, failures included.
func (p *Plan) Calls(c Call) int { return p.calls[c] }

func (p *Plan) failChain(k rules.ChainKey) error { return p.FailChains[k] }

func (p *Plan) failRule(c rules.RuleChange) error {
	return p.FailRules[RuleKey{c.Chain, rules.Canonical(c.Chain.Family, c.Rule)}]
}

func (p *Plan) failJump(k rules.JumpKey) error { return p.FailJumps[k] }
