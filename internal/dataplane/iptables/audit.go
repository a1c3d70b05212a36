package iptables

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/announce"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/netfilter"
)

// auditor reads all rules beside the loop: with many Services that takes seconds, and no change
// waits for it. Rows that were written meanwhile count as written.
type auditor struct {
	deps      Deps
	tables    *tables
	announced *announce.Manager

	cancel  context.CancelFunc
	reading chan listing
	touched map[any]struct{} // rows written since the reading began
	tuneErr error            // error of setting sysctls, in this audit
	// read is the generation of the rules as they were read last; 0 is not known.
	read uint64
}

// listing has the rules that a reading found, and how long it took.
type listing struct {
	chains     map[netfilter.ChainKey]netfilter.Chain
	jumps      map[netfilter.JumpKey]netfilter.Jump
	generation uint64
	took       time.Duration
	err        error
}

// touch notes a row that was written during a reading.
func (a *auditor) touch(key any) {
	if a.reading != nil {
		a.touched[key] = struct{}{}
	}
}

// stop ends a reading.
func (a *auditor) stop() {
	if a.reading != nil {
		a.cancel()
		<-a.reading // one reader at a time
		a.reading, a.touched = nil, nil
	}
}

func (a *auditor) start(ctx context.Context) {
	ctx, a.cancel = context.WithCancel(ctx)
	a.reading, a.touched = make(chan listing, 1), map[any]struct{}{}
	from, now, out := a.deps.Rules, a.deps.Now, a.reading
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

// Audit implements dataplane.Auditor. Rules are not read again where the kernel reports that no process
// has written any since they were read.
func (a *auditor) Audit(ctx context.Context, budget time.Duration) (dataplane.Audited, error) {
	if a.reading == nil {
		a.tuneErr = a.retune(ctx)
		if g := a.deps.Rules.Generation(ctx); g != 0 && g == a.read {
			drift := dataplane.Drift{}
			return dataplane.Audited{Drift: drift, Done: true}, errors.Join(a.tuneErr, a.readRest(ctx, drift))
		}
		a.start(ctx)
	}
	select {
	case l := <-a.reading:
		a.cancel()
		touched := a.touched
		a.reading, a.touched = nil, nil
		if l.err != nil {
			return dataplane.Audited{Done: true, Cost: l.took}, errors.Join(a.tuneErr, fmt.Errorf("read rules: %w", l.err))
		}
		began := a.deps.Now()
		drift := a.compare(l, touched)
		if a.read = l.generation; len(touched) > 0 {
			a.read = 0 // these were not looked at
		}
		err := errors.Join(a.tuneErr, a.readRest(ctx, drift))
		return dataplane.Audited{Drift: drift, Done: true, Cost: l.took + a.deps.Now().Sub(began)}, err
	case <-ctx.Done():
		return dataplane.Audited{Done: true}, ctx.Err()
	case <-time.After(min(budget, auditPollWait)):
		return dataplane.Audited{}, nil
	}
}

// readRest reads the tables that have no rules, and adds their drift.
func (a *auditor) readRest(ctx context.Context, drift dataplane.Drift) error {
	n, err := a.announced.Inspect(ctx, false)
	if n > 0 {
		drift[a.announced.Rows.Name()] = n
	}
	return errors.Join(err, a.tables.loadNFTables(ctx))
}

// Sample implements dataplane.Auditor: it sets sysctls again. Package rulewatch notices rules that other
// processes write.
func (a *auditor) Sample(ctx context.Context) (dataplane.Sampled, error) {
	return dataplane.Sampled{}, a.retune(ctx)
}

func (a *auditor) retune(ctx context.Context) error {
	if a.deps.Tune == nil {
		return nil
	}
	return a.deps.Tune(ctx)
}

// compare takes a listing as the rules in place, but for rows that were written since it began. A dispatch
// chain that was written is compared in the next round.
func (a *auditor) compare(l listing, touched map[any]struct{}) dataplane.Drift {
	shared := map[netfilter.ChainKey][]netfilter.Line{}
	for key := range touched {
		switch k := key.(type) {
		case netfilter.ChainKey:
			if isDispatch(k) {
				shared[k] = nil
			} else {
				restore(l.chains, k, a.tables.chains.Believed)
			}
		case entry:
			shared[k.chain] = nil
		case netfilter.JumpKey:
			restore(l.jumps, k, a.tables.jumps.Believed)
		}
	}
	if len(shared) > 0 {
		for e := range a.tables.entries.Actual() {
			if lines, ok := shared[e.chain]; ok {
				shared[e.chain] = append(lines, e.rule)
			}
		}
	}
	for k, lines := range shared {
		if have, ok := a.tables.chains.Believed(k); ok {
			l.chains[k] = netfilter.ChainOf(lines).Then(have)
		} else {
			delete(l.chains, k)
		}
	}
	return a.tables.loadRules(l.chains, l.jumps)
}

// restore replaces the row that was read by the known one.
func restore[K comparable, V any](read map[K]V, k K, believed func(K) (V, bool)) {
	if have, ok := believed(k); ok {
		read[k] = have
	} else {
		delete(read, k)
	}
}
