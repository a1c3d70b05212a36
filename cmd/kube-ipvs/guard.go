package main

import (
	"context"
	"hash/fnv"
	"time"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
)

// guardPeriod is how often somebody looks for a sign that rules were changed. It costs a
// message to the kernel, and nothing more while nothing has changed.
const guardPeriod = 500 * time.Millisecond

// sentinels are jumps that every flush of a table takes away (decision 25). All modes
// have them.
func sentinels(families []rules.Family) []rules.JumpKey {
	var out []rules.JumpKey
	for _, f := range families {
		out = append(out,
			rules.JumpKey{Family: f, Table: "nat", Hook: "PREROUTING", Target: "KUBE-SERVICES"},
			rules.JumpKey{Family: f, Table: "nat", Hook: "POSTROUTING", Target: "KUBE-POSTROUTING"},
			rules.JumpKey{Family: f, Table: "filter", Hook: "FORWARD", Target: "KUBE-FORWARD"},
		)
	}
	return out
}

// guard has the loop write rules again that somebody flushed, until ctx ends.
func (p *program) guard(ctx context.Context) error {
	keys := sentinels(p.kernel.rules.Families())
	tick := time.NewTicker(guardPeriod)
	defer tick.Stop()
	var seen uint64
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if p.loop.Condition().Updated.IsZero() {
			continue // what is not written yet cannot be lost
		}
		sign, err := p.kernel.rulesSign(ctx)
		if err != nil || sign == seen {
			continue // the audit finds what this cannot
		}
		if p.lookAfter(ctx, keys) {
			seen = sign
		}
	}
}

// lookAfter looks whether the sentinels stand, and has the loop mend what is lost.
func (p *program) lookAfter(ctx context.Context, keys []rules.JumpKey) (done bool) {
	missing, err := p.kernel.rules.JumpsThere(ctx, keys)
	if err != nil || len(missing) == 0 {
		return err == nil
	}
	p.log.Warn("somebody flushed rules, writing them again", zap.Stringer("missing", missing[0]), zap.Int("of", len(missing)))
	if err := p.loop.Repair(ctx, p.carrier.Load().reload); err != nil && ctx.Err() == nil {
		p.log.Warn("repair of rules failed, the audit will try again", zap.Error(err))
		return false
	}
	return true
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
			if err != nil {
				return 0, err
			}
			var b [8]byte
			for i := range b {
				b[i] = byte(n >> (8 * i))
			}
			_, _ = sum.Write(b[:]) // a hash takes everything
		}
	}
	return sum.Sum64(), nil
}
