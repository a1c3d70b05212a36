package main

import (
	"context"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
)

const (
	// guardPeriod is the shortest time between two questions whether rules were changed,
	// and between two where nftables does not tell by itself.
	guardPeriod = 500 * time.Millisecond
	// guardPoll is the poll interval for legacy iptables, which sends no notifications. It
	// is half of the two seconds within which a flush is repaired.
	guardPoll = time.Second
	// guardRest is the longest time between two looks at what is lost and stays so, and
	// how long a kernel that would not tell of changes is not asked to again.
	guardRest = 30 * time.Second
	// guardBelt is the time between two questions where the kernel tells, in case that it
	// stops to.
	guardBelt = 30 * time.Second
)

// sentry sees to it that jumps that somebody took away are written again. It waits until
// the kernel tells of a change, or else asks for a sign of one again and again; only then
// it looks.
type sentry struct {
	log   *zap.Logger
	own   *ownWrites
	jumps []rules.JumpKey
	// missing tells which of the jumps are not there, repair has them written.
	missing func(context.Context, []rules.JumpKey) ([]rules.JumpKey, error)
	repair  func(context.Context) error
	// watch is nftables.Handle.Watch; nil where nobody tells.
	watch func(ctx context.Context, changed func()) error
	poll  time.Duration
	belt  time.Duration // guardBelt; a test sets another

	hears atomic.Bool // watch tells of changes
	news  chan struct{}
}

func newSentry(log *zap.Logger, own *ownWrites, jumps []rules.JumpKey) *sentry {
	return &sentry{log: log, own: own, jumps: jumps, poll: guardPoll, belt: guardBelt, news: make(chan struct{})}
}

// answer is what came of a question.
type answer int

const (
	unchanged answer = iota // or changed, and nothing is lost
	unclear                 // to be asked again soon
	lost                    // and perhaps mended
)

// run returns when ctx ends.
func (s *sentry) run(ctx context.Context) {
	done := make(chan struct{})
	defer func() { <-done }()
	go func() {
		defer close(done)
		s.listen(ctx)
	}()
	last, pause := unclear, guardPeriod
	for s.rest(ctx, last, pause) {
		switch last = s.ask(ctx); last {
		case unchanged:
			pause = guardPeriod
		case lost: // what cannot be mended is not tried at full speed
			pause = min(2*pause, guardRest)
		}
	}
}

// rest waits after a question until there is a reason for another one; false: ctx ended.
func (s *sentry) rest(ctx context.Context, last answer, pause time.Duration) bool {
	if last != unchanged {
		return sleep(ctx, pause)
	}
	asked, period := time.Now(), s.poll
	if s.hears.Load() {
		period = s.belt
	}
	select {
	case <-ctx.Done():
		return false
	case <-s.news:
		return sleep(ctx, guardPeriod-time.Since(asked))
	case <-time.After(period):
		return true
	}
}

// listen has the kernel tell of changes, until ctx ends. It stays with each until that
// is taken: what comes meanwhile waits in the kernel, and is one with the next.
func (s *sentry) listen(ctx context.Context) {
	if s.watch == nil {
		return
	}
	for said := false; ; said = true {
		err := s.watch(ctx, func() {
			s.hears.Store(true)
			s.tell(ctx)
		})
		heard := s.hears.Swap(false)
		if err == nil || ctx.Err() != nil {
			return
		}
		if heard || !said {
			s.log.Debug("the kernel does not tell of changes of rules, asking for them", zap.Duration("period", s.poll), zap.Error(err))
		}
		s.tell(ctx)
		if !sleep(ctx, guardRest) {
			return
		}
	}
}

// tell hands a piece of news over.
func (s *sentry) tell(ctx context.Context) {
	select {
	case <-ctx.Done():
	case s.news <- struct{}{}:
	}
}

// ask asks for the sign, and looks if it is a new one.
func (s *sentry) ask(ctx context.Context) answer {
	before := s.own.jumping.Load()
	sign, err := s.own.sign(ctx)
	switch {
	case err != nil || s.own.writing.Load() > 0: // the audit finds what this cannot
		return unclear
	case sign == s.own.seen.Load():
		return unchanged
	}
	result := s.look(ctx, before)
	if result == unchanged {
		s.own.seen.Store(sign)
	}
	return result
}

// look looks whether the jumps stand, and has those mended that stood before. What is
// missing says nothing if the agent has begun to write jumps meanwhile.
func (s *sentry) look(ctx context.Context, before uint64) answer {
	missing, err := s.missing(ctx, s.jumps)
	switch {
	case err != nil:
		return lost
	case s.own.jumping.Load() != before:
		return unclear
	}
	gone := s.own.stood.lost(s.jumps, missing)
	if len(gone) == 0 {
		return unchanged
	}
	s.log.Warn("somebody flushed rules, writing them again", zap.Stringer("missing", gone[0]), zap.Int("of", len(gone)))
	if err := s.repair(ctx); err != nil && ctx.Err() == nil {
		s.log.Warn("repair of rules failed, the audit will try again", zap.Error(err))
	}
	return lost // to look once more: more may go while it is mended
}

// sleep waits; false: ctx ended.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
