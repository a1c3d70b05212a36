package conntrack

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"
)

// Table carries out the orders of a Sweeper: a Handle. Two sweeps may be under way at a time.
type Table interface {
	Sweep(ctx context.Context, orders []Order) (Outcome, error)
}

// SweeperOptions tune a Sweeper. The zero value of a field means its default.
type SweeperOptions struct {
	// Collect is how long an order waits for company. Default 20 ms.
	Collect time.Duration
	// Keys is the largest number of keys that are swept at once. Default 4,096.
	Keys int
	// Apart is the least time from the start of a sweep that reads all flows to that
	// of the next. Default 1 s.
	Apart time.Duration
	// RetryMin and RetryMax bound the pause after a failure, which doubles from one
	// to the next. Default 1 s and 30 s.
	RetryMin, RetryMax time.Duration
	// Observed gets the family, 4 or 6, the duration, the result and the error of each sweep; it
	// may be nil. It is called by one goroutine at a time and does not wait for anything.
	Observed func(family uint8, took time.Duration, out Outcome, err error)
}

// Defaults fills in what was left at zero.
func (o SweeperOptions) Defaults() SweeperOptions {
	for field, value := range map[*time.Duration]time.Duration{
		&o.Collect: 20 * time.Millisecond, &o.Apart: time.Second, &o.RetryMin: time.Second, &o.RetryMax: 30 * time.Second,
	} {
		if *field <= 0 {
			*field = value
		}
	}
	if o.Keys <= 0 {
		o.Keys = 4096
	}
	if o.Observed == nil {
		o.Observed = func(uint8, time.Duration, Outcome, error) {}
	}
	return o
}

// Stats are the waiting and finished work of a Sweeper.
type Stats struct {
	Waiting int // orders that were not carried out yet, those under way included
	IPv4    FamilyStats
	IPv6    FamilyStats
}

// FamilyStats are totals since NewSweeper; they only grow.
type FamilyStats struct {
	Sweeps   uint64 // failed ones included
	Failures uint64
	Deleted  uint64 // flows
}

// Sweeper carries out orders on its own goroutine, so that callers never wait. The newest order for
// a key counts, and each is tried until it succeeds.
type Sweeper struct {
	log   *zap.Logger
	table Table
	opts  SweeperOptions
	wake  chan struct{} // holds a token when an order came, or a long sweep ended

	telling sync.Mutex // held while a sweep is reported
	mu      sync.Mutex
	queues  [2]familyQueue // IPv4 and IPv6, which are swept apart
	reading bool           // a sweep runs that reads all flows
	read    time.Time      // when the last of that kind began
}

// NewSweeper returns a Sweeper that does nothing until Run is called; orders may be
// given before.
func NewSweeper(log *zap.Logger, table Table, opts SweeperOptions) *Sweeper {
	s := &Sweeper{log: log.Named("sweeper"), table: table, opts: opts.Defaults(), wake: make(chan struct{}, 1)}
	s.queues[0].family, s.queues[1].family = 4, 6
	return s
}

// Order gives orders. It never blocks and may be called from any goroutine; an
// order replaces the one for the same key that waits.
func (s *Sweeper) Order(list ...Order) {
	s.mu.Lock()
	for _, o := range list {
		if o.Key.Addr.IsValid() {
			s.queue(uint8(o.Key.Family())).put(o)
		}
	}
	s.mu.Unlock()
	s.nudge()
}

// nudge has Run look at what waits.
func (s *Sweeper) nudge() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *Sweeper) queue(family uint8) *familyQueue {
	if family == 4 {
		return &s.queues[0]
	}
	return &s.queues[1]
}

// Stats may be called from any goroutine.
func (s *Sweeper) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := Stats{IPv4: s.queues[0].stats, IPv6: s.queues[1].stats}
	for i := range s.queues {
		out.Waiting += s.queues[i].left()
	}
	return out
}

// Run carries out orders until the context ends, and returns nil then. One
// goroutine runs it. A sweep that reads all flows takes its time on a goroutine of
// its own: a change of a few keys does not wait for it.
func (s *Sweeper) Run(ctx context.Context) error {
	var long sync.WaitGroup
	defer long.Wait()
	for {
		next := s.next()
		if wait := time.Until(next.due); wait > 0 {
			if !s.rest(ctx, wait) {
				return nil
			}
			continue // newer orders may be more urgent
		}
		start := time.Now()
		l, j := next.queue, s.begin(next, start)
		if next.all {
			long.Go(func() { s.sweep(ctx, l, j, start); s.stopReading() })
			continue
		}
		s.sweep(ctx, l, j, start)
		s.rested(l, time.Since(start))
		if ctx.Err() != nil {
			return nil
		}
	}
}

// rested keeps the next sweep of a queue away for a while: under a stream of orders
// half of the time is the packets'.
func (s *Sweeper) rested(l *familyQueue, took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.notBefore = time.Now().Add(min(max(took, s.opts.Collect), mostRest))
}

// Orders that spare connections can wait: a client dials again after a second, three and
// seven (RFC 6298), and where backends come and go all day so do they. Alone they take no
// more than one part in connectionShare of the time, and no sweep waits longer than
// longestWait for it.
const (
	connectionShare = 10
	longestWait     = 10 * time.Second
)

// mostRest is the longest pause after a long sweep, and idle is the poll interval without orders.
const (
	mostRest = 500 * time.Millisecond
	idle     = time.Hour
)

// rest waits for an order, or the end of a time; false when the context ended.
func (s *Sweeper) rest(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-s.wake:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// turn is a queue that may be swept at a time; all means that it has to read all flows.
type turn struct {
	queue *familyQueue
	due   time.Time
	all   bool
}

// next returns the turn that comes first. At most one sweep reads all flows, and
// two of them begin some time apart.
func (s *Sweeper) next() turn {
	s.mu.Lock()
	defer s.mu.Unlock()
	first := turn{due: time.Now().Add(idle)}
	for i := range s.queues {
		l := &s.queues[i]
		if len(l.waiting) == 0 {
			continue
		}
		t := turn{l, later(l.due(s.opts), l.notBefore), l.readsAll()}
		if t.all {
			t.due = later(t.due, s.read.Add(s.opts.Apart))
		}
		if l.sparing() {
			t.due = later(t.due, l.spared)
		}
		if t.due.Before(first.due) && (!t.all || !s.reading) {
			first = t
		}
	}
	return first
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// begin takes what waits.
func (s *Sweeper) begin(t turn, start time.Time) *job {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.all {
		s.reading, s.read = true, start
	}
	return t.queue.take(s.opts.Keys)
}

func (s *Sweeper) stopReading() {
	s.mu.Lock()
	s.reading = false
	s.mu.Unlock()
	s.nudge()
}

// sweep carries out a job.
func (s *Sweeper) sweep(ctx context.Context, l *familyQueue, j *job, start time.Time) {
	out, err := s.table.Sweep(ctx, j.orders)
	took := time.Since(start)
	s.mu.Lock()
	if err != nil && ctx.Err() != nil {
		l.putBack(j)
		s.mu.Unlock()
		return
	}
	if out.Whole > 0 {
		s.read = later(s.read, start)
	}
	l.spared = time.Now().Add(min((connectionShare-1)*took, longestWait))
	previous := l.settle(j, out, err)
	pause := l.pause(s.opts)
	s.mu.Unlock()

	s.telling.Lock()
	defer s.telling.Unlock()
	s.opts.Observed(l.family, took, out, err)
	log := s.log.With(zap.Uint8("family", l.family), zap.Int("keys", len(j.orders)), zap.Duration("took", took))
	if out.Deleted > 0 {
		log.Info("stale flows deleted", zap.Int("rows", out.Deleted), zap.Int("seen", out.Seen))
	}
	switch {
	case err != nil && err.Error() != previous:
		log.Warn("removing stale flows failed, will be tried again", zap.Duration("retry", pause), zap.Error(err))
	case err == nil && previous != "":
		log.Info("stale flows can be removed again")
	}
}
