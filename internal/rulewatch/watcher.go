package rulewatch

import (
	"context"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nftables"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
)

const (
	// minPollInterval is the minimum time between two polls, and the poll interval of nftables
	// without notifications.
	minPollInterval = 500 * time.Millisecond
	// legacyPollInterval is the poll interval of legacy iptables, which sends no notifications.
	// It is half of the two seconds within which a flush is repaired.
	legacyPollInterval = time.Second
	// maxRetryInterval is the maximum time between two repairs of jumps that stay missing, and
	// the time until a kernel that refused to send notifications is asked again.
	maxRetryInterval = 30 * time.Second
	// safetyPollInterval is the poll interval while the kernel sends notifications. It bounds
	// the delay of a repair if the notifications stop.
	safetyPollInterval = 30 * time.Second
)

// A Watcher repairs jumps that another program removed. It waits for a notification of the
// kernel, or polls the generation of the rules. It looks for its jumps only when the
// generation is a new one.
type Watcher struct {
	log   *zap.Logger
	own   *TrackedRules
	jumps []rules.JumpKey
	// missing returns those of the jumps that are not in the kernel.
	missing func(context.Context, []rules.JumpKey) ([]rules.JumpKey, error)
	repair  func(context.Context) error
	// watch is nftables.Handle.Watch; nil where the kernel sends no notifications.
	watch  func(ctx context.Context, changed func([]nftables.Writer)) error
	poll   time.Duration
	safety time.Duration

	notified atomic.Bool // watch sends notifications
	news     chan struct{}
}

// NewWatcher returns a watcher of the jumps of own. repair has the mode read all rules and write
// those that are missing.
func NewWatcher(log *zap.Logger, own *TrackedRules, repair func(context.Context) error) *Watcher {
	w := newWatcher(log, own, watchedJumps(own.Families()))
	w.missing, w.repair = own.missing, repair
	if own.Backend() == rules.NFT {
		w.watch, w.poll = own.tables.Watch, minPollInterval
	}
	return w
}

func newWatcher(log *zap.Logger, own *TrackedRules, jumps []rules.JumpKey) *Watcher {
	return &Watcher{log: log, own: own, jumps: jumps, poll: legacyPollInterval, safety: safetyPollInterval, news: make(chan struct{})}
}

// result is the outcome of one poll.
type result int

const (
	intact  result = iota // no watched jump is missing
	unknown               // the next poll is due soon
	lost                  // a jump was missing; its repair was tried
)

// Run watches until ctx ends.
func (w *Watcher) Run(ctx context.Context) {
	done := make(chan struct{})
	defer func() { <-done }()
	go func() {
		defer close(done)
		w.listen(ctx)
	}()
	last, pause := unknown, minPollInterval
	for w.wait(ctx, last, pause) {
		switch last = w.check(ctx); last {
		case intact:
			pause = minPollInterval
		case lost: // back off while the repair does not help
			pause = min(2*pause, maxRetryInterval)
		}
	}
}

// wait blocks until the next poll is due. It returns false when ctx ended.
func (w *Watcher) wait(ctx context.Context, last result, pause time.Duration) bool {
	if last != intact {
		return sleep(ctx, pause)
	}
	since, period := time.Now(), w.poll
	if w.notified.Load() {
		period = w.safety
	}
	select {
	case <-ctx.Done():
		return false
	case <-w.news:
		return sleep(ctx, minPollInterval-time.Since(since))
	case <-time.After(period):
		return true
	}
}

// listen receives notifications of the kernel until ctx ends. It blocks until the poll loop takes
// a notification: later ones wait in the socket, and count as one.
func (w *Watcher) listen(ctx context.Context) {
	if w.watch == nil {
		return
	}
	for logged := false; ; logged = true {
		err := w.watch(ctx, func([]nftables.Writer) {
			w.notified.Store(true)
			w.notify(ctx)
		})
		worked := w.notified.Swap(false)
		if err == nil || ctx.Err() != nil {
			return
		}
		if worked || !logged {
			w.log.Debug("no notifications about changed rules from the kernel, polling instead", zap.Duration("period", w.poll), zap.Error(err))
		}
		w.notify(ctx)
		if !sleep(ctx, maxRetryInterval) {
			return
		}
	}
}

// notify makes the next poll due.
func (w *Watcher) notify(ctx context.Context) {
	select {
	case <-ctx.Done():
	case w.news <- struct{}{}:
	}
}

// check reads the generation of the rules, and looks for the jumps if it is a new one.
func (w *Watcher) check(ctx context.Context) result {
	before := w.own.jumping.Load()
	generation, err := w.own.generation(ctx)
	switch {
	case err != nil || w.own.writing.Load() > 0: // the audit finds what this poll misses
		return unknown
	case generation == w.own.seen.Load():
		return intact
	}
	out := w.look(ctx, before)
	if out == intact {
		w.own.seen.Store(generation)
	}
	return out
}

// look reads which jumps are missing, and starts the repair of those that were in place before.
// The reading counts for nothing if the agent has begun to write jumps since before.
func (w *Watcher) look(ctx context.Context, before uint64) result {
	missing, err := w.missing(ctx, w.jumps)
	switch {
	case err != nil:
		return lost
	case w.own.jumping.Load() != before:
		return unknown
	}
	gone := w.own.known.lost(w.jumps, missing)
	if len(gone) == 0 {
		return intact
	}
	w.log.Warn("another program flushed rules, writing them again", zap.Stringer("missing", gone[0]), zap.Int("of", len(gone)))
	if err := w.repair(ctx); err != nil && ctx.Err() == nil {
		w.log.Warn("repair of rules failed, the audit will try again", zap.Error(err))
	}
	return lost // look once more: another jump may go during the repair
}

// sleep blocks for d. It returns false when ctx ended.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
