package conntrack

import (
	"iter"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"
)

// familyQueue has the orders of one family. The Sweeper's lock guards it.
type familyQueue struct {
	family  uint8
	waiting map[Key]Order
	queue   []Key // those that wait, the oldest first
	running []*job

	failures  int       // since the last success
	failed    time.Time // when the last one was
	problem   string    // and what it was
	fresh     bool      // an order came since the last sweep began
	came      time.Time // the first of those
	notBefore time.Time // after a short sweep
	spared    time.Time // when orders that spare connections may be carried out alone
	unasked   bool      // the last sweep read all flows though it had a few ports only
	stats     FamilyStats
}

// job is a sweep that is under way.
type job struct {
	orders   []Order
	outdated map[Key]*atomic.Bool // its keys, and whether a newer order came for one
}

// put adds an order, or replaces the one for its key, which keeps its place.
func (l *familyQueue) put(o Order) {
	if l.waiting == nil {
		l.waiting = map[Key]Order{}
	}
	if _, waits := l.waiting[o.Key]; !waits {
		l.queue = append(l.queue, o.Key)
	}
	o.Fresh = union(l.waiting[o.Key].Fresh, o.Fresh)
	l.waiting[o.Key] = o
	for _, j := range l.running {
		if old, has := j.outdated[o.Key]; has {
			old.Store(true) // the sweep asks before it deletes
		}
	}
	if !l.fresh {
		l.fresh, l.came = true, time.Now()
	}
}

// union are the entries of both.
func union(a, b []netip.AddrPort) []netip.AddrPort {
	if len(a) == 0 {
		return b
	}
	out := slices.Concat(a, b)
	slices.SortFunc(out, netip.AddrPort.Compare)
	return slices.Compact(out)
}

// take begins a sweep with up to n orders.
func (l *familyQueue) take(n int) *job {
	n = min(n, len(l.queue))
	j := &job{orders: make([]Order, 0, n), outdated: make(map[Key]*atomic.Bool, n)}
	for _, k := range l.queue[:n] {
		o := l.waiting[k]
		o.outdated = new(atomic.Bool)
		j.outdated[k] = o.outdated
		j.orders = append(j.orders, o)
		delete(l.waiting, k)
	}
	l.queue = slices.Delete(l.queue, 0, n)
	l.running = append(l.running, j)
	l.fresh = false
	return j
}

// settle ends a sweep and returns the error of the one before, empty if it
// succeeded.
func (l *familyQueue) settle(j *job, out Outcome, err error) (previous string) {
	l.stats.Sweeps++
	l.stats.Deleted += uint64(out.Deleted)
	l.unasked = out.Whole > 0 && !manyPorts(slices.Values(j.orders))
	previous = l.problem
	if err != nil {
		l.stats.Failures++
		l.failures++
		l.failed, l.problem = time.Now(), err.Error()
		l.putBack(j)
		return previous
	}
	l.failures, l.problem = 0, ""
	l.end(j)
	return previous
}

func (l *familyQueue) end(j *job) {
	l.running = slices.DeleteFunc(l.running, func(other *job) bool { return other == j })
}

// putBack returns orders to the head of the queue, except those that a newer order has replaced.
// The newer order waits, with the fresh addresses of the old one, or was carried out meanwhile.
func (l *familyQueue) putBack(j *job) {
	var keys []Key
	for _, o := range j.orders {
		newer, waits := l.waiting[o.Key]
		switch {
		case !j.outdated[o.Key].Load():
			l.waiting[o.Key] = o
			keys = append(keys, o.Key)
		case waits:
			newer.Fresh = union(o.Fresh, newer.Fresh)
			l.waiting[o.Key] = newer
		}
	}
	l.queue = append(keys, l.queue...)
	l.end(j)
}

// left is how many orders were not carried out yet.
func (l *familyQueue) left() int {
	n := len(l.waiting)
	for _, j := range l.running {
		n += len(j.orders)
	}
	return n
}

// pause is how long failed orders rest.
func (l *familyQueue) pause(opts SweeperOptions) time.Duration {
	d := opts.RetryMin
	for range l.failures - 1 {
		if d *= 2; d >= opts.RetryMax {
			return opts.RetryMax
		}
	}
	return d
}

// due is when the queue may be swept. New orders do not wait for what failed again
// and again, and are no reason to try without a pause.
func (l *familyQueue) due(opts SweeperOptions) time.Time {
	company := l.came.Add(opts.Collect)
	switch {
	case l.failures == 0:
		return company
	case l.fresh:
		return later(company, l.failed.Add(opts.RetryMin))
	}
	return l.failed.Add(l.pause(opts))
}

// sparing reports whether only orders wait that spare connections.
func (l *familyQueue) sparing() bool {
	for _, o := range l.waiting {
		if !o.SparesConnections() {
			return false
		}
	}
	return true
}

// readsAll reports whether a sweep of the waiting orders has to read all flows.
func (l *familyQueue) readsAll() bool {
	return l.unasked || manyPorts(func(yield func(Order) bool) {
		for _, k := range l.queue {
			if !yield(l.waiting[k]) {
				return
			}
		}
	})
}

// manyPorts reports whether there are more ports than can be queried one by one.
func manyPorts(orders iter.Seq[Order]) bool {
	seen := map[query]struct{}{}
	for o := range orders {
		seen[portOf(o.Key)] = struct{}{}
		for _, k := range o.fresh() {
			seen[portFrom(k)] = struct{}{}
		}
		if len(seen) > FilteredPorts {
			return true
		}
	}
	return false
}
