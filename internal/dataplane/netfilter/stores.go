package netfilter

import (
	"context"

	"github.com/kube-ipvs/kube-ipvs/internal/delta"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
)

// Lister reads all rules of ours; *rules.Handle is one.
type Lister interface {
	List(ctx context.Context) (map[rules.ChainKey]rules.Chain, map[rules.JumpKey]rules.Jump, error)
}

// Tables is the part of kernel/rules that a mode uses for its tables of chains and jumps.
type Tables interface {
	Lister
	WriteChains(ctx context.Context, changes []rules.ChainChange) []error
	WriteJumps(ctx context.Context, changes []rules.JumpChange) []error
}

// List reads chains and jumps, which come from one listing.
func List(ctx context.Context, from Lister) (map[ChainKey]Chain, map[JumpKey]Jump, error) {
	chains, jumps, err := from.List(ctx)
	if err != nil {
		return nil, nil, err
	}
	found, leads := make(map[ChainKey]Chain, len(chains)), make(map[JumpKey]Jump, len(jumps))
	for k, c := range chains {
		found[k] = ReadChain(c)
	}
	for k, j := range jumps {
		leads[k] = Jump{j.Args}
	}
	return found, leads, nil
}

var ops = map[delta.Op]rules.Op{delta.Add: rules.Add, delta.Update: rules.Update, delta.Delete: rules.Delete}

// ChainChange returns a change of a chain as kernel/rules has it.
func ChainChange(c delta.Change[ChainKey, Chain]) rules.ChainChange {
	return rules.ChainChange{Op: ops[c.Op], Key: c.Key, Chain: rules.Chain{Rules: c.Value.text}}
}

// LineChange returns a change of one line of a chain as kernel/rules has it.
func LineChange(op delta.Op, chain ChainKey, l Line) rules.RuleChange {
	return rules.RuleChange{Op: ops[op], Chain: chain, Rule: l.text}
}

// JumpChange returns a change of a jump as kernel/rules has it. Jumps decide its place.
func (js Jumps) JumpChange(c delta.Change[JumpKey, Jump]) rules.JumpChange {
	return rules.JumpChange{
		Op: ops[c.Op], Key: c.Key, Jump: rules.Jump{Args: c.Value.text}, Last: js.last(c.Key), Behind: js.above(c.Key),
	}
}

// ChainStore reads and writes chains.
type ChainStore struct{ Rules Tables }

// List returns our chains.
func (s ChainStore) List(ctx context.Context) (map[ChainKey]Chain, error) {
	chains, _, err := List(ctx, s.Rules)
	return chains, err
}

// Write hands all changed chains over at once.
func (s ChainStore) Write(ctx context.Context, changes []delta.Change[ChainKey, Chain]) []error {
	batch := make([]rules.ChainChange, len(changes))
	for i, c := range changes {
		batch[i] = ChainChange(c)
	}
	return s.Rules.WriteChains(ctx, batch)
}

// JumpStore reads and writes the jumps to our chains.
type JumpStore struct {
	Rules JumpTable
	Jumps Jumps
}

// JumpTable is the part of kernel/rules that a JumpStore uses.
type JumpTable interface {
	Lister
	WriteJumps(ctx context.Context, changes []rules.JumpChange) []error
}

// List returns the jumps.
func (s JumpStore) List(ctx context.Context) (map[JumpKey]Jump, error) {
	_, jumps, err := List(ctx, s.Rules)
	return jumps, err
}

// Write hands all changed jumps over at once.
func (s JumpStore) Write(ctx context.Context, changes []delta.Change[JumpKey, Jump]) []error {
	batch := make([]rules.JumpChange, len(changes))
	for i, c := range changes {
		batch[i] = s.Jumps.JumpChange(c)
	}
	return s.Rules.WriteJumps(ctx, batch)
}

// ChainCommand returns what an operator would type to make a change of a chain.
func ChainCommand(c delta.Change[ChainKey, Chain]) string { return rules.ChainCommand(ChainChange(c)) }

// LineCommand returns it of one line of a chain.
func LineCommand(op delta.Op, chain ChainKey, l Line) string {
	return rules.RuleCommand(LineChange(op, chain, l))
}

// JumpCommand returns it of a jump.
func JumpCommand(c delta.Change[JumpKey, Jump]) string {
	return rules.JumpCommand(Jumps{}.JumpChange(c))
}
