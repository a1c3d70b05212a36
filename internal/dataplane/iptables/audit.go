package iptables

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
)

// audit reads all rules beside the loop: with many Services that takes seconds, and no
// change waits for it. What was written meanwhile is believed as it was written.
type audit struct {
	cancel  context.CancelFunc
	reading chan listing
	touched map[any]struct{} // rows written since the reading began
	rested  time.Time        // when the next one may begin
	untuned error            // of what is asked of the kernel, in this round
}

// listing is what a reading found, and how long it took.
type listing struct {
	chains map[rules.ChainKey]rules.Chain
	jumps  map[rules.JumpKey]rules.Jump
	took   time.Duration
	err    error
}

// touch notes a row that was written during a reading.
func (a *audit) touch(key any) {
	if a.reading != nil {
		a.touched[key] = struct{}{}
	}
}

// stop gives a reading up.
func (a *audit) stop() {
	if a.reading != nil {
		a.cancel()
		<-a.reading // one reader at a time
		a.reading, a.touched = nil, nil
	}
}

func (a *audit) start(ctx context.Context, m *Mode) {
	ctx, a.cancel = context.WithCancel(ctx)
	a.reading, a.touched = make(chan listing, 1), map[any]struct{}{}
	list, now, out := m.deps.Rules.List, m.deps.Now, a.reading
	go func() {
		began := now()
		var l listing
		l.chains, l.jumps, l.err = list(ctx)
		l.took = now().Sub(began)
		out <- l
	}()
}

// glance is how long one call of Audit waits for the reading.
const glance = 5 * time.Millisecond

// Audit compares the kernel with what is believed, in rounds with a rest in between that
// keeps their cost a small share of what the machine has.
func (m *Mode) Audit(ctx context.Context, budget time.Duration) (dataplane.Drift, bool, error) {
	a := &m.audit
	if a.reading == nil {
		if m.deps.Now().Before(a.rested) {
			return nil, true, nil
		}
		a.untuned = m.retune(ctx)
		a.start(ctx, m)
	}
	select {
	case l := <-a.reading:
		a.cancel()
		touched := a.touched
		a.reading, a.touched = nil, nil
		a.rested = m.deps.Now().Add(time.Duration(m.config.AuditShare) * l.took)
		if l.err != nil {
			return nil, true, errors.Join(a.untuned, fmt.Errorf("read rules: %w", l.err))
		}
		return m.compare(l, touched), true, errors.Join(a.untuned, m.loadForeign(ctx))
	case <-ctx.Done():
		return nil, true, ctx.Err()
	case <-time.After(min(budget, glance)):
		return nil, false, nil
	}
}

func (m *Mode) retune(ctx context.Context) error {
	if m.deps.Tune == nil {
		return nil
	}
	return m.deps.Tune(ctx)
}

// compare believes a listing, but for what was written since it began. A dispatch chain
// that was touched is looked at in the next round.
func (m *Mode) compare(l listing, touched map[any]struct{}) dataplane.Drift {
	shared := map[rules.ChainKey][]string{}
	for key := range touched {
		switch k := key.(type) {
		case rules.ChainKey:
			if isDispatch(k) {
				shared[k] = nil
			} else {
				restore(l.chains, k, m.chains.Believed)
			}
		case entry:
			shared[k.chain] = nil
		case rules.JumpKey:
			restore(l.jumps, k, m.jumps.Believed)
		}
	}
	if len(shared) > 0 {
		for e := range m.entries.Actual() {
			if lines, ok := shared[e.chain]; ok {
				shared[e.chain] = append(lines, e.rule)
			}
		}
	}
	for k, lines := range shared {
		if have, ok := m.chains.Believed(k); ok {
			l.chains[k] = rules.Chain{Rules: text(lines, have.Rules)}
		} else {
			delete(l.chains, k)
		}
	}
	return m.believe(l.chains, l.jumps)
}

// restore puts what is believed of a row in the place of what was read.
func restore[K comparable, V any](read map[K]V, k K, believed func(K) (V, bool)) {
	if have, ok := believed(k); ok {
		read[k] = have
	} else {
		delete(read, k)
	}
}
