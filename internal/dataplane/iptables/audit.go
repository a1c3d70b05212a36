package iptables

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/netfilter"
)

// audit reads all rules beside the loop: with many Services that takes seconds, and no
// change waits for it. What was written meanwhile is believed as it was written.
type audit struct {
	cancel  context.CancelFunc
	reading chan listing
	touched map[any]struct{} // rows written since the reading began
	tuneErr error            // of what is asked of the kernel, in this audit
	// read is the generation of the rules as they were read last; 0 is not known.
	read uint64
}

// listing is what a reading found, and how long it took.
type listing struct {
	chains     map[netfilter.ChainKey]netfilter.Chain
	jumps      map[netfilter.JumpKey]netfilter.Jump
	generation uint64
	took       time.Duration
	err        error
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
	from, now, out := m.deps.Rules, m.deps.Now, a.reading
	go func() {
		began := now()
		l := listing{generation: from.Generation(ctx)} // before, so that what comes meanwhile is read next time
		l.chains, l.jumps, l.err = netfilter.List(ctx, from)
		l.took = now().Sub(began)
		out <- l
	}()
}

// auditPollWait is how long one call of Audit waits for the reading.
const auditPollWait = 5 * time.Millisecond

// Audit compares the kernel with what is believed. Where the kernel tells that nobody has
// written rules since they were read, they are not read again.
func (m *Mode) Audit(ctx context.Context, budget time.Duration) (dataplane.Audited, error) {
	a := &m.audit
	if a.reading == nil {
		a.tuneErr = m.retune(ctx)
		if g := m.deps.Rules.Generation(ctx); g != 0 && g == a.read {
			return dataplane.Audited{Done: true}, errors.Join(a.tuneErr, m.loadTables(ctx))
		}
		a.start(ctx, m)
	}
	select {
	case l := <-a.reading:
		a.cancel()
		touched := a.touched
		a.reading, a.touched = nil, nil
		if l.err != nil {
			return dataplane.Audited{Done: true, Cost: l.took}, errors.Join(a.tuneErr, fmt.Errorf("read rules: %w", l.err))
		}
		began := m.deps.Now()
		drift := m.compare(l, touched)
		if a.read = l.generation; len(touched) > 0 {
			a.read = 0 // these were not looked at
		}
		return dataplane.Audited{Drift: drift, Done: true, Cost: l.took + m.deps.Now().Sub(began)}, errors.Join(a.tuneErr, m.loadTables(ctx))
	case <-ctx.Done():
		return dataplane.Audited{Done: true}, ctx.Err()
	case <-time.After(min(budget, auditPollWait)):
		return dataplane.Audited{}, nil
	}
}

// Sample implements dataplane.Auditor: sysctls are set again. That rules were written
// somebody else watches.
func (m *Mode) Sample(ctx context.Context) (dataplane.Sampled, error) {
	return dataplane.Sampled{}, m.retune(ctx)
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
	shared := map[netfilter.ChainKey][]netfilter.Line{}
	for key := range touched {
		switch k := key.(type) {
		case netfilter.ChainKey:
			if isDispatch(k) {
				shared[k] = nil
			} else {
				restore(l.chains, k, m.chains.Believed)
			}
		case entry:
			shared[k.chain] = nil
		case netfilter.JumpKey:
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
			l.chains[k] = netfilter.ChainOf(lines).Then(have)
		} else {
			delete(l.chains, k)
		}
	}
	return m.loadListing(l.chains, l.jumps)
}

// restore puts what is believed of a row in the place of what was read.
func restore[K comparable, V any](read map[K]V, k K, believed func(K) (V, bool)) {
	if have, ok := believed(k); ok {
		read[k] = have
	} else {
		delete(read, k)
	}
}
