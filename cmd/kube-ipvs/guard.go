package main

import (
	"context"
	"encoding/binary"
	"errors"
	"hash/fnv"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nftables"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
)

// sentinels are jumps that a flush of a table or of a hook removes, one for each hook
// (internal/DECISIONS.md, Repair of losses). The last two exist only in ipvs mode.
func sentinels(families []rules.Family) []rules.JumpKey {
	var out []rules.JumpKey
	for _, f := range families {
		for _, j := range [][3]string{
			{"nat", "PREROUTING", "KUBE-SERVICES"},
			{"nat", "OUTPUT", "KUBE-SERVICES"},
			{"nat", "POSTROUTING", "KUBE-POSTROUTING"},
			{"filter", "FORWARD", "KUBE-FORWARD"},
			{"filter", "INPUT", "KUBE-PROXY-FIREWALL"},
			{"filter", "OUTPUT", "KUBE-SERVICES"},
			{"filter", "OUTPUT", "KUBE-IPVS-OUT-FILTER"},
			{"mangle", "OUTPUT", "KUBE-IPVS-OUT-FILTER"},
		} {
			out = append(out, rules.JumpKey{Family: f, Table: j[0], Hook: j[1], Target: j[2]})
		}
	}
	return out
}

// guard has the loop write rules again that somebody flushed, until ctx ends.
func (p *program) guard(ctx context.Context) error {
	k := p.kernel
	s := newSentry(p.log, k.own, sentinels(k.rules.Families()))
	s.missing = k.missing
	s.repair = func(ctx context.Context) error { return p.loop.Repair(ctx, p.carrier.reload) }
	if k.rules.Backend() == rules.NFT {
		s.watch, s.poll = k.tables.Watch, guardPeriod
	}
	s.run(ctx)
	return nil
}

// standing are the jumps that were seen or written, by any goroutine, and not taken away
// by the agent itself.
type standing struct {
	mu    sync.Mutex
	jumps map[rules.JumpKey]bool
}

// set notes that a jump stands, or that it is not to.
func (s *standing) set(k rules.JumpKey, stands bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.note(k, stands)
}

func (s *standing) note(k rules.JumpKey, stands bool) {
	if s.jumps == nil {
		s.jumps = map[rules.JumpKey]bool{}
	}
	s.jumps[k] = stands
}

// lost are those that are missing and stood before; the others stand.
func (s *standing) lost(all, missing []rules.JumpKey) (lost []rules.JumpKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range all {
		switch {
		case !slices.Contains(missing, k):
			s.note(k, true)
		case s.jumps[k]:
			lost = append(lost, k)
		}
	}
	return lost
}

// missing asks which jumps are not there: where the rules are nftables' without a process.
func (k *kernel) missing(ctx context.Context, keys []rules.JumpKey) ([]rules.JumpKey, error) {
	if k.rules.Backend() != rules.NFT {
		return k.rules.JumpsThere(ctx, keys)
	}
	var out []rules.JumpKey
	for _, j := range keys {
		leads, err := k.tables.Leads(ctx, nftables.Key{Family: j.Family.String(), Name: j.Table}, j.Hook, j.Target)
		if err != nil {
			return nil, err
		}
		if !leads {
			out = append(out, j)
		}
	}
	return out, nil
}

// ownWrites passes rules on and remembers the sign that they leave: what the agent wrote
// itself is no reason to look. Only legacy needs that, where a look is a process that
// reads a whole table; what somebody else changes in the same moment the audit finds. With
// nft a look costs little, and a few rules that the agent wrote are one.
type ownWrites struct {
	*rules.Handle
	sign func(context.Context) (uint64, error)
	seen atomic.Uint64
	// writing counts the writes under way, in the middle of which a sign says nothing; with
	// nft those of jumps alone. jumping counts all of these that ever began: until such a
	// write has come back, a jump that is away may be one that the agent took away.
	writing atomic.Int32
	jumping atomic.Uint64
	// stood: a flush is to be noticed that comes before the first look.
	stood standing
}

// List implements the rules of a mode, and notes the jumps that are there.
func (o *ownWrites) List(ctx context.Context) (map[rules.ChainKey]rules.Chain, map[rules.JumpKey]rules.Jump, error) {
	chains, jumps, err := o.Handle.List(ctx)
	for k := range jumps {
		o.stood.set(k, true)
	}
	return chains, jumps, err
}

// Write passes chains and single rules on.
func (o *ownWrites) Write(ctx context.Context, chains []rules.ChainChange, edits []rules.RuleChange) (chainErrs, ruleErrs []error) {
	defer o.begin(ctx)(ctx)
	return o.Handle.Write(ctx, chains, edits)
}

// WriteChains passes chains on.
func (o *ownWrites) WriteChains(ctx context.Context, changes []rules.ChainChange) []error {
	defer o.begin(ctx)(ctx)
	return o.Handle.WriteChains(ctx, changes)
}

// WriteJumps passes jumps on.
func (o *ownWrites) WriteJumps(ctx context.Context, changes []rules.JumpChange) []error {
	defer o.begin(ctx)(ctx)
	o.writing.Add(1)
	defer o.writing.Add(-1)
	o.jumping.Add(1)
	errs := o.Handle.WriteJumps(ctx, changes)
	for i, c := range changes {
		if errs == nil || errs[i] == nil {
			o.stood.set(c.Key, c.Op != rules.Delete)
		}
	}
	return errs
}

// begin is called before a write, and what it returns after it.
func (o *ownWrites) begin(ctx context.Context) (end func(context.Context)) {
	if o.Backend() == rules.NFT {
		return func(context.Context) {}
	}
	before, err := o.sign(ctx)
	o.writing.Add(1)
	return func(ctx context.Context) {
		defer o.writing.Add(-1)
		if after, failed := o.sign(ctx); err == nil && failed == nil {
			o.seen.CompareAndSwap(before, after)
		}
	}
}

// rulesSign is another number after each change of the rules by anybody.
func (k *kernel) rulesSign(ctx context.Context) (uint64, error) {
	if k.rules.Backend() == rules.NFT {
		n, err := k.tables.Generation(ctx)
		return uint64(n) + 1, err
	}
	sum := fnv.New64a()
	for _, f := range k.rules.Families() {
		n, err := k.rules.Stamp(f, "nat", "filter")
		if err != nil && !errors.Is(err, rules.ErrUnsupported) { // tables that are not loaded are empty
			return 0, err
		}
		_ = binary.Write(sum, binary.LittleEndian, n) // a hash takes everything
	}
	return sum.Sum64(), nil
}
