package rulewatch

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/firewall"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nftables"
)

const (
	// minReadInterval is the minimum time between two readings of filters. After a reading that
	// took d, the next one waits readTimeFactor times d, at most maxReadInterval.
	minReadInterval = 2 * time.Second
	readTimeFactor  = 20
	maxReadInterval = 30 * time.Second
	// ReadTimeout bounds one reading of filters.
	ReadTimeout = 30 * time.Second
	// quietPeriod is the time without a change of nftables before filters are read: while rules
	// are written a reading starts again and again, and slows the writer down.
	quietPeriod = 5 * time.Second
)

// FirewallOptions are the inputs and receivers of a FirewallWatcher.
type FirewallOptions struct {
	// Tables reads the filters of all programs.
	Tables func(context.Context) ([]firewall.Table, error)
	// Frontends returns the frontends that clients dial, Facts what else is known of the node.
	Frontends func(context.Context) ([]firewall.Frontend, error)
	Facts     func(context.Context) (firewall.Facts, error)
	// Watch is nftables.Handle.Watch.
	Watch func(ctx context.Context, changed func([]nftables.Writer)) error
	// Period is the time between two readings without a change.
	Period func() time.Duration
	// Busy reports whether the loop is writing.
	Busy func() bool
	// Blocked is called when a filter begins to drop packets of Services.
	Blocked func(firewall.Block)
	// Repair makes the loop read and write our rules: a rule that another program added may
	// precede the rule that accepts packets of Services.
	Repair func(context.Context) error
}

// A FirewallWatcher reports when a filter of another program begins to drop packets of Services,
// and when it stops. It reads the filters once a period, and soon after nftables have changed.
// It runs beside the loop, and waits while the loop writes, for at most a period.
type FirewallWatcher struct {
	log *zap.Logger
	o   FirewallOptions

	mu      sync.Mutex
	current map[string]firewall.Block
}

// NewFirewallWatcher returns a watcher.
func NewFirewallWatcher(log *zap.Logger, o FirewallOptions) *FirewallWatcher {
	return &FirewallWatcher{log: log.Named("firewall"), o: o}
}

// Blocks returns how many Services each base chain drops packets of, by table and chain.
func (w *FirewallWatcher) Blocks() map[[2]string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := map[[2]string]int{}
	for _, b := range w.current {
		at := [2]string{b.Cause.Table, b.Cause.Base}
		out[at] = max(out[at], b.Services)
	}
	return out
}

// Run watches until ctx ends.
func (w *FirewallWatcher) Run(ctx context.Context) {
	changed := make(chan struct{}, 1)
	done := make(chan struct{})
	defer func() { <-done }()
	go func() {
		defer close(done)
		w.listen(ctx, changed)
	}()
	for w.waitForQuiet(ctx, changed) {
		start := time.Now()
		if err := w.update(ctx); err != nil && ctx.Err() == nil {
			w.log.Info("cannot read the filters of other programs", zap.Error(err))
		}
		if !sleep(ctx, min(max(minReadInterval, readTimeFactor*time.Since(start)), maxReadInterval)) {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-time.After(w.o.Period()):
		}
	}
}

// waitForQuiet blocks until nftables have not changed for quietPeriod and the loop is idle, for
// at most a period. It returns false when ctx ended.
func (w *FirewallWatcher) waitForQuiet(ctx context.Context, changed <-chan struct{}) bool {
	for latest := time.Now().Add(w.o.Period()); time.Now().Before(latest); {
		select {
		case <-ctx.Done():
			return false
		case <-changed:
		case <-time.After(quietPeriod):
			if !w.o.Busy() {
				return true
			}
		}
	}
	return ctx.Err() == nil
}

// listen signals changes until ctx ends. Where the kernel sends no notifications the watcher
// reads once a period.
func (w *FirewallWatcher) listen(ctx context.Context, changed chan<- struct{}) {
	for ctx.Err() == nil {
		_ = w.o.Watch(ctx, func([]nftables.Writer) {
			select {
			case changed <- struct{}{}:
			default:
			}
		})
		sleep(ctx, maxRetryInterval)
	}
}

// update judges the filters. If one of our own rules may stop a new drop it repairs them, and
// judges again. A reading that fails changes nothing that was reported.
func (w *FirewallWatcher) update(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, ReadTimeout)
	defer cancel()
	r, err := w.judge(ctx)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(r.Blocks, func(b firewall.Block) bool { return b.Ours() && !w.isKnown(b) }) {
		if err := w.o.Repair(ctx); err != nil {
			return err
		}
		if r, err = w.judge(ctx); err != nil {
			return err
		}
	}
	w.report(r)
	return nil
}

func (w *FirewallWatcher) judge(ctx context.Context) (firewall.Report, error) {
	tables, err := w.o.Tables(ctx)
	if err != nil {
		return firewall.Report{}, err
	}
	facts, err := w.o.Facts(ctx)
	if err != nil {
		return firewall.Report{}, err
	}
	if firewall.Quiet(tables, facts) {
		return firewall.Report{}, nil
	}
	frontends, err := w.o.Frontends(ctx)
	if err != nil {
		return firewall.Report{}, err
	}
	return firewall.Judge(tables, frontends, facts), nil
}

// isKnown reports whether a block was reported before.
func (w *FirewallWatcher) isKnown(b firewall.Block) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, is := w.current[b.Key()]
	return is
}

// report logs the blocks that begin and those that end.
func (w *FirewallWatcher) report(r firewall.Report) {
	now := map[string]firewall.Block{}
	for _, b := range r.Blocks {
		now[b.Key()] = b
	}
	w.mu.Lock()
	before := w.current
	w.current = now
	w.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(now)) {
		if _, known := before[key]; !known {
			b := now[key]
			w.log.Warn("a firewall drops packets of Services", zap.String("what", b.String()), zap.Strings("remedy", b.Fix))
			w.o.Blocked(b)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(before)) {
		if b := before[key]; now[key].Services == 0 {
			w.log.Info("the firewall no longer drops packets of Services", zap.Stringer("where", b.Cause))
		}
	}
}
