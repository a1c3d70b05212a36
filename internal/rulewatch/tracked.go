package rulewatch

import (
	"context"
	"encoding/binary"
	"errors"
	"hash/fnv"
	"sync/atomic"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nftables"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
)

// TrackedRules is the handle through which a mode writes rules. It keeps the generation that
// each write leaves, so that a Watcher does not look for jumps after the agent's own writes. Only
// legacy iptables needs that, because there a look is a process that reads a whole table; the
// audit finds what another program changes during a write. With nft a look for jumps is cheap, and the Watcher
// looks after some of the agent's writes, too.
type TrackedRules struct {
	*rules.Handle
	tables     *nftables.Handle
	generation func(context.Context) (uint64, error)
	// seen is the generation after which all watched jumps were in place.
	seen atomic.Uint64
	// writing counts the writes under way, during which a generation means nothing; with nft only
	// those of jumps. jumping counts the writes of jumps that ever began: until such a write has
	// returned, the agent itself may have deleted a jump that is missing.
	writing atomic.Int32
	jumping atomic.Uint64
	// known lets the first look notice a flush.
	known knownJumps
}

// Track returns the tracked rules of a handle. tables has the generation of nftables.
func Track(h *rules.Handle, tables *nftables.Handle) *TrackedRules {
	t := &TrackedRules{Handle: h, tables: tables}
	t.generation = t.rulesGeneration
	return t
}

// List implements the rules of a mode, and records the jumps that are in place.
func (t *TrackedRules) List(ctx context.Context) (map[rules.ChainKey]rules.Chain, map[rules.JumpKey]rules.Jump, error) {
	chains, jumps, err := t.Handle.List(ctx)
	for k := range jumps {
		t.known.set(k, true)
	}
	return chains, jumps, err
}

// Write writes chains and single rules.
func (t *TrackedRules) Write(ctx context.Context, chains []rules.ChainChange, edits []rules.RuleChange) (chainErrs, ruleErrs []error) {
	defer t.begin(ctx)(ctx)
	return t.Handle.Write(ctx, chains, edits)
}

// WriteChains writes chains.
func (t *TrackedRules) WriteChains(ctx context.Context, changes []rules.ChainChange) []error {
	defer t.begin(ctx)(ctx)
	return t.Handle.WriteChains(ctx, changes)
}

// WriteJumps writes jumps, and records those that were written.
func (t *TrackedRules) WriteJumps(ctx context.Context, changes []rules.JumpChange) []error {
	defer t.begin(ctx)(ctx)
	t.writing.Add(1)
	defer t.writing.Add(-1)
	t.jumping.Add(1)
	errs := t.Handle.WriteJumps(ctx, changes)
	for i, c := range changes {
		if errs == nil || errs[i] == nil {
			t.known.set(c.Key, c.Op != rules.Delete)
		}
	}
	return errs
}

// begin is called before a write. The caller calls the returned function after the write.
func (t *TrackedRules) begin(ctx context.Context) (end func(context.Context)) {
	if t.Backend() == rules.NFT {
		return func(context.Context) {}
	}
	before, err := t.generation(ctx)
	t.writing.Add(1)
	return func(ctx context.Context) {
		defer t.writing.Add(-1)
		if after, failed := t.generation(ctx); err == nil && failed == nil {
			t.seen.CompareAndSwap(before, after)
		}
	}
}

// missing returns those of the jumps that are not in the kernel. With nftables it starts no process.
func (t *TrackedRules) missing(ctx context.Context, keys []rules.JumpKey) ([]rules.JumpKey, error) {
	if t.Backend() != rules.NFT {
		return t.JumpsThere(ctx, keys)
	}
	var out []rules.JumpKey
	for _, j := range keys {
		leads, err := t.tables.Leads(ctx, nftables.Key{Family: j.Family.Table(), Name: j.Table}, j.Hook, j.Target)
		if err != nil {
			return nil, err
		}
		if !leads {
			out = append(out, j)
		}
	}
	return out, nil
}

// rulesGeneration returns a number that each change of the rules by any program changes.
func (t *TrackedRules) rulesGeneration(ctx context.Context) (uint64, error) {
	if t.Backend() == rules.NFT {
		n, err := t.tables.Generation(ctx)
		return uint64(n) + 1, err
	}
	sum := fnv.New64a()
	for _, f := range t.Families() {
		n, err := t.Stamp(f, "nat", "filter")
		if err != nil && !errors.Is(err, rules.ErrUnsupported) { // tables that are not loaded are empty
			return 0, err
		}
		_ = binary.Write(sum, binary.LittleEndian, n) // a hash takes everything
	}
	return sum.Sum64(), nil
}
