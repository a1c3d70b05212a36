package main

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/agent"
	"github.com/kube-ipvs/kube-ipvs/internal/firewall"
)

const (
	// wallRest is the shortest time between two readings of filters. Where a reading takes
	// long the next one waits wallShare times that, or wallMost.
	wallRest  = 2 * time.Second
	wallShare = 20
	wallMost  = 30 * time.Second
	// wallPatience bounds one reading.
	wallPatience = 30 * time.Second
	// wallQuiet is for how long nftables have to stay as they are before they are read: while
	// rules are written a reading begins again and again, and costs who writes its time.
	wallQuiet = 5 * time.Second
)

// wallWatch looks once a sync period, and soon after nftables have changed, whether a filter of
// another program drops packets of Services, and says so when that begins and when it ends. It
// has no part in the loop, and waits while that writes, for a period at most.
type wallWatch struct {
	log    *zap.Logger
	reader keptFilters
	// services visits what the loop knows, facts returns what is known of the node.
	services func(context.Context, func(agent.Known)) error
	facts    func(context.Context) (firewall.Facts, error)
	// watch is nftables.Handle.Watch.
	watch  func(ctx context.Context, changed func()) error
	period func() time.Duration
	// busy reports whether the loop is at something.
	busy  func() bool
	begun func(firewall.Block)
	// repair has the loop read and write our rules: a rule that came meanwhile may stand
	// before the one that accepts packets of Services.
	repair func(context.Context) error

	mu    sync.Mutex
	stand map[string]firewall.Block
}

func (p *program) newWallWatch() *wallWatch {
	return &wallWatch{
		log: p.log.Named("firewall"), reader: keptFilters{filterReader: newFilterReader(p.kernel.tables)}, watch: p.kernel.tables.Watch,
		services: func(ctx context.Context, visit func(agent.Known)) error {
			ids, err := p.loop.Services(ctx)
			if err != nil {
				return err
			}
			return p.loop.Look(ctx, ids, visit)
		},
		facts: func(ctx context.Context) (firewall.Facts, error) {
			h, err := p.loop.HostNow(ctx)
			return firewallFacts(p.live.now(), p.ipvsMode() != nil, h.Node), err
		},
		period: func() time.Duration { return periods(p.live.now()).AuditPeriod },
		busy:   func() bool { return !p.loop.Condition().Busy.IsZero() },
		repair: func(ctx context.Context) error { return p.loop.Repair(ctx, p.carrier.reload) },
		begun:  herald{p.events}.walled,
	}
}

// watchFirewalls begins when everything was written once: before, INPUT has no rule of ours.
func (p *program) watchFirewalls(ctx context.Context) error {
	if p.afterStart(ctx, wallPatience) {
		p.walls.run(ctx)
	}
	return nil
}

// run returns when ctx ends.
func (w *wallWatch) run(ctx context.Context) {
	changed := make(chan struct{}, 1)
	done := make(chan struct{})
	defer func() { <-done }()
	go func() {
		defer close(done)
		w.listen(ctx, changed)
	}()
	for w.calm(ctx, changed) {
		start := time.Now()
		if err := w.look(ctx); err != nil && ctx.Err() == nil {
			w.log.Info("filters of other programs cannot be judged", zap.Error(err))
		}
		if !sleep(ctx, min(max(wallRest, wallShare*time.Since(start)), wallMost)) {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-time.After(w.period()):
		}
	}
}

// calm waits until nothing has changed for wallQuiet and the loop is at nothing, for a period at
// most; false: ctx ended.
func (w *wallWatch) calm(ctx context.Context, changed <-chan struct{}) bool {
	for latest := time.Now().Add(w.period()); time.Now().Before(latest); {
		select {
		case <-ctx.Done():
			return false
		case <-changed:
		case <-time.After(wallQuiet):
			if !w.busy() {
				return true
			}
		}
	}
	return ctx.Err() == nil
}

// listen notes changes, until ctx ends. Where the kernel does not tell of them the period is
// left.
func (w *wallWatch) listen(ctx context.Context, changed chan<- struct{}) {
	for ctx.Err() == nil {
		_ = w.watch(ctx, func() {
			select {
			case changed <- struct{}{}:
			default:
			}
		})
		sleep(ctx, guardRest)
	}
}

// look reads and judges once, and once more if our own rules may mend what it finds. What
// cannot be read changes nothing of what was said.
func (w *wallWatch) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, wallPatience)
	defer cancel()
	r, err := w.judge(ctx)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(r.Blocks, func(b firewall.Block) bool { return b.Ours() && !w.stands(b) }) {
		if err := w.repair(ctx); err != nil {
			return err
		}
		if r, err = w.judge(ctx); err != nil {
			return err
		}
	}
	w.say(r)
	return nil
}

func (w *wallWatch) judge(ctx context.Context) (firewall.Report, error) {
	tables, err := w.reader.read(ctx)
	if err != nil {
		return firewall.Report{}, err
	}
	facts, err := w.facts(ctx)
	if err != nil {
		return firewall.Report{}, err
	}
	if firewall.Quiet(tables, facts) {
		return firewall.Report{}, nil
	}
	var frontends []firewall.Frontend
	if err := w.services(ctx, func(k agent.Known) { frontends = append(frontends, walled(k)...) }); err != nil {
		return firewall.Report{}, err
	}
	return firewall.Judge(tables, frontends, facts), nil
}

// stands reports whether a block was told already.
func (w *wallWatch) stands(b firewall.Block) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, is := w.stand[b.Key()]
	return is
}

// say tells of what begins and of what ends.
func (w *wallWatch) say(r firewall.Report) {
	now := map[string]firewall.Block{}
	for _, b := range r.Blocks {
		now[b.Key()] = b
	}
	w.mu.Lock()
	before := w.stand
	w.stand = now
	w.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(now)) {
		if _, known := before[key]; !known {
			b := now[key]
			w.log.Warn("a firewall drops packets of Services", zap.String("what", b.String()), zap.Strings("remedy", b.Fix))
			w.begun(b)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(before)) {
		if b := before[key]; now[key].Services == 0 {
			w.log.Info("a firewall drops packets of Services no more", zap.Stringer("where", b.Cause))
		}
	}
}

// blocks is how many Services each base chain drops packets of, by table and chain.
func (w *wallWatch) blocks() map[[2]string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := map[[2]string]int{}
	for _, b := range w.stand {
		at := [2]string{b.Cause.Table, b.Cause.Base}
		out[at] = max(out[at], b.Services)
	}
	return out
}
