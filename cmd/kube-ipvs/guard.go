package main

import (
	"context"
	"encoding/binary"
	"errors"
	"hash/fnv"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nftables"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
)

// guardPeriod is how often somebody looks for a sign that rules were changed. It costs a
// message to the kernel, and nothing more while nothing has changed.
const guardPeriod = 500 * time.Millisecond

// guardRest is the longest time between two looks at what is lost and stays so.
const guardRest = 30 * time.Second

// sentinels are jumps that a flush of a table or of a hook takes away (decision 25), one
// for each hook; the last two are of ipvs mode alone.
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
	own, period := p.kernel.own, guardPeriod
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(period):
		}
		sign, err := own.sign(ctx)
		switch {
		case err != nil || own.writing.Load() > 0 || sign == own.seen.Load(): // the audit finds what this cannot
		case p.lookAfter(ctx):
			own.seen.Store(sign)
			period = guardPeriod
		default: // what cannot be mended is not tried at full speed
			period = min(2*period, guardRest)
		}
	}
}

// lookAfter looks whether the sentinels stand, and has the loop mend what is lost: those
// that stood before.
func (p *program) lookAfter(ctx context.Context) (done bool) {
	all := sentinels(p.kernel.rules.Families())
	missing, err := p.kernel.missing(ctx, all)
	if err != nil {
		return false
	}
	lost := p.kernel.own.stood.lost(all, missing)
	if len(lost) == 0 {
		return true
	}
	p.log.Warn("somebody flushed rules, writing them again", zap.Stringer("missing", lost[0]), zap.Int("of", len(lost)))
	if err := p.loop.Repair(ctx, p.carrier.Load().reload); err != nil && ctx.Err() == nil {
		p.log.Warn("repair of rules failed, the audit will try again", zap.Error(err))
	}
	return false // to look once more: more may go while it is mended
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
// reads a whole table; what somebody else changes in the same moment the audit finds.
type ownWrites struct {
	*rules.Handle
	sign func(context.Context) (uint64, error)
	seen atomic.Uint64
	// writing counts the writes under way, in the middle of which a sign says nothing.
	writing atomic.Int32
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
		for _, table := range []string{"nat", "filter"} {
			n, err := k.rules.Stamp(f, table)
			if err != nil && !errors.Is(err, rules.ErrUnsupported) { // a table that is not loaded is empty
				return 0, err
			}
			_ = binary.Write(sum, binary.LittleEndian, n) // a hash takes everything
		}
	}
	return sum.Sum64(), nil
}
