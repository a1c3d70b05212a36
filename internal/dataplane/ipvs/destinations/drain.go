package destinations

import (
	"context"
	"iter"
	"net/netip"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// A destination whose endpoint leaves while its server stays is desired with weight 0, which
// takes no new connections, until it is idle or its time is over (internal/DECISIONS.md,
// Draining). Draining is desired state, so it survives a lost server, a failed write and an
// audit. A new process drains each undesired destination that it finds under a desired
// server. It grants the whole drain time, because the kernel does not store a start time.

// drains are the destinations that drain, by their server.
type drains struct {
	began time.Time // turns are counted from here (nextTurn)
	of    map[vserver.ServerKey]map[vserver.DestinationKey]drain
	count int
	// fresh counts the drains that began since the last pass that might end some.
	fresh int
	ended map[dataplane.DrainEnd]uint64
	// nextPoll is when the kernel's counts of connections are read next.
	nextPoll  time.Time
	deadlines deadlineHeap
	// counting is the reading in progress, of the destinations in asked; spent is the time that
	// it took so far. The next reading begins after rested.
	counting vserver.Counting
	asked    map[vserver.DestinationKey]struct{}
	spent    time.Duration
	rested   time.Time
	// piece is when the last piece of the reading was read.
	piece time.Time
	// deferredSince is when drain work was first postponed for changes.
	deferredSince time.Time
	// leaving were counted to be idle, and may be deleted.
	leaving []vserver.DestinationKey
	// unread is the error of the last counting.
	unread string
}

// drain is the state of one destination that drains.
type drain struct {
	// stopped is when the endpoint stopped serving. It is zero while the endpoint is kept
	// (model.Frontend.Kept) and the drain has no limit.
	stopped time.Time
	limit   time.Duration
	// noActive: no connection was established at the last count. Those that are counted
	// nevertheless are closed and kept for a while.
	noActive bool
	// last is the last count of its connections, if counted.
	last    vserver.Connections
	counted bool
	// nextPoll is when its connections are counted next.
	nextPoll time.Time
	// idle is since when no connection was counted, while the destination waits to be deleted
	// (trash); zero if there is a connection, or no count.
	idle time.Time
	// due is the entry of the drain in the heap of deadlines; zero for none.
	due time.Time
}

// The connections of a drain are counted for the first time after firstPoll, since most drains have
// none by then. All drains share poll times, one each pollInterval; separate counts for a few
// changes in a row took a quarter of the cost of a change. After that a drain is counted at each
// poll time while it has a deadline and established connections, else every idlePollInterval.
// Reading takes at most one part in pollBudgetDivisor of the time, for any number of servers. It
// reads one piece in a pass, so that a change does not wait for all of it. If passes are far apart,
// it reads as many pieces as fit into that share.
const (
	firstPoll         = time.Second
	pollInterval      = 5 * time.Second
	idlePollInterval  = 10 * time.Second
	pollBudgetDivisor = 20
)

// maxDeferral is how long drain work may be deferred by changes.
const maxDeferral = 250 * time.Millisecond

// maxExpiriesPerPass bounds the drains that end in one pass: the rest follow in the next, after what
// has changed by then. After each pass the kernel walks its table of connections
// (expire_nodest_conn), so the bound is not smaller. It is larger where more drains begin (atOnce).
const maxExpiriesPerPass = 32

func newDrains() drains {
	return drains{began: time.Now(), of: map[vserver.ServerKey]map[vserver.DestinationKey]drain{}, ended: map[dataplane.DrainEnd]uint64{}}
}

func (d *drains) get(k vserver.DestinationKey) (drain, bool) {
	one, ok := d.of[k.Server][k]
	return one, ok
}

func (d *drains) set(k vserver.DestinationKey, one drain, now time.Time) {
	if d.of[k.Server] == nil {
		d.of[k.Server] = map[vserver.DestinationKey]drain{}
	}
	if _, had := d.of[k.Server][k]; !had {
		one.nextPoll = d.firstPollOf(one, now)
		if d.counting == nil && (d.count == 0 || one.nextPoll.Before(d.nextPoll)) {
			d.nextPoll = later(one.nextPoll, d.rested) // running drains end no later for it
		}
		d.count++
		d.fresh++
	}
	d.of[k.Server][k] = d.schedule(k, one)
}

// end drops a drain, if there is one, and counts how it ended.
func (d *drains) end(k vserver.DestinationKey, how dataplane.DrainEnd) {
	if _, had := d.get(k); !had {
		return
	}
	delete(d.of[k.Server], k)
	delete(d.asked, k) // it may have been counted before it took connections again
	if len(d.of[k.Server]) == 0 {
		delete(d.of, k.Server)
	}
	d.count--
	d.ended[how]++
	d.sweepDeadlines()
}

// all goes over everything that drains.
func (d *drains) all() iter.Seq2[vserver.DestinationKey, drain] {
	return func(yield func(vserver.DestinationKey, drain) bool) {
		for _, list := range d.of {
			for k, one := range list {
				if !yield(k, one) {
					return
				}
			}
		}
	}
}

// at lists what drains at one server.
func (d *drains) at(k vserver.ServerKey) []vserver.DestinationKey {
	var out []vserver.DestinationKey
	for dk := range d.of[k] {
		out = append(out, dk)
	}
	return out
}

// drainable reports whether destinations of a frontend drain at all. UDP has no connections. dh
// keeps sending new connections to a destination of weight 0, because its hash knows no other
// (ip_vs_dh_schedule, net/netfilter/ipvs/ip_vs_dh.c). The same is true of sh without sh-fallback
// and mh without mh-fallback.
func drainable(f *model.Frontend) bool {
	if f.Key.Protocol == model.UDP || f.Drain == 0 {
		return false
	}
	switch f.Scheduler.Name() {
	case "dh":
		return false
	case "sh", "mh":
		return f.Scheduler.KernelFlags()&vserver.FlagSched1 != 0
	}
	return true
}

// leave takes a destination out of a server that stays or goes with its frontend.
func (m *Manager) leave(k vserver.DestinationKey, c dataplane.Change) {
	m.slow.forget(k)
	switch {
	case c.New == nil || c.Old != nil && c.Old.Service != c.New.Service:
		m.drains.end(k, dataplane.DrainServiceDeleted)
		m.DeleteDesired(k)
	case !m.MayBeThere(k) || !drainable(c.New):
		m.drains.end(k, dataplane.DrainDeadline)
		m.DeleteDesired(k)
	default:
		m.drain(k, c.New)
	}
}

// drain starts to drain a destination, or continues with its known state.
func (m *Manager) drain(k vserver.DestinationKey, f *model.Frontend) {
	now := time.Now()
	one, _ := m.drains.get(k)
	one.limit = f.Drain
	switch _, kept := slices.BinarySearchFunc(f.Kept, netip.AddrPortFrom(k.Addr, k.Port), netip.AddrPort.Compare); {
	case kept:
		one.stopped = time.Time{}
	case one.stopped.IsZero():
		one.stopped = now
	}
	m.drains.set(k, one, now)
	m.SetDesired(k, vserver.Destination{})
}

// drainFound drains destinations that were found in the kernel under wanted servers and that no
// frontend has: they were backends for an earlier process, or for kube-proxy.
func (m *Manager) drainFound() {
	if m.Counts().Orphans == 0 {
		return
	}
	for _, k := range slices.Collect(m.AllDeletes()) {
		if m.Deleting(k, false) {
			continue
		}
		if f, ok := m.frontends.Get(k.Server); ok && drainable(&f) {
			m.drain(k, &f)
		}
	}
}

// endDrains ends what is idle, and what had its time. While neither can be, it costs
// nothing, however much drains.
func (m *Manager) endDrains(ctx context.Context, now time.Time) {
	d := &m.drains
	most := d.atOnce()
	if d.count == 0 || !d.anything(now) {
		return
	}
	if len(d.leaving) == 0 {
		d.leaving = m.selectForDelete(m.idle(ctx, now), now)
	}
	ended := d.leave(most)
	cut := d.overdue(now, ended, most)
	for k, how := range ended {
		d.end(k, how)
		m.DeleteDesired(k)
	}
	if cut > 0 {
		m.log.Info("drain time is over, the remaining connections are cut",
			zap.Int("destinations", cut), zap.Int("draining", d.count))
	}
}

// atOnce is how many drains may end in a pass. Under constant changes and long passes, more drains
// may begin between two passes than end in one. Then twice as many end, so that they do not
// accumulate.
func (d *drains) atOnce() int {
	most := max(maxExpiriesPerPass, 2*d.fresh)
	d.fresh = 0
	return most
}

// mayEnd reports whether a pass may end drains: if it has no changes, or if changes deferred them
// for maxDeferral.
func (d *drains) mayEnd(changed bool, now time.Time) bool {
	if !changed || d.count == 0 || !d.anything(now) {
		d.deferredSince = time.Time{}
		return true
	}
	if d.deferredSince.IsZero() {
		d.deferredSince = now
	}
	if now.Sub(d.deferredSince) < maxDeferral {
		return false
	}
	d.deferredSince = time.Time{}
	return true
}

// anything reports whether it is time to count, or a drain may end.
func (d *drains) anything(now time.Time) bool {
	return len(d.leaving) > 0 || !now.Before(d.nextPoll) || d.over(now)
}

// leave takes as many of those that may be deleted as end in one pass.
func (d *drains) leave(most int) map[vserver.DestinationKey]dataplane.DrainEnd {
	ended := map[vserver.DestinationKey]dataplane.DrainEnd{}
	n := min(len(d.leaving), most)
	for _, k := range d.leaving[:n] {
		if one, still := d.get(k); still && !one.idle.IsZero() {
			ended[k] = dataplane.DrainEmpty
		}
	}
	if d.leaving = d.leaving[n:]; len(d.leaving) == 0 {
		d.leaving = nil
	}
	return ended
}

// idle returns the draining destinations without a connection, when it is time to count and all
// counts were read. Only a destination whose weight of 0 was in the kernel when the reading began,
// and ever since, is returned: it gets no other connection.
func (m *Manager) idle(ctx context.Context, now time.Time) []vserver.DestinationKey {
	d := &m.drains
	if now.Before(d.nextPoll) {
		return nil
	}
	if d.counting == nil {
		d.asked, d.spent, d.piece = m.countable(now), 0, now
		d.counting = m.kernel.Count(d.asked)
	}
	share := now.Sub(d.piece) / pollBudgetDivisor
	counts, done, err := d.counting.Next(ctx)
	for !done && err == nil && time.Since(now) < share {
		counts, done, err = d.counting.Next(ctx)
	}
	d.piece = time.Now()
	d.spent += d.piece.Sub(now)
	if !done && err == nil {
		return nil // nextPoll is past: the rest is due at once
	}
	m.logCountError(ctx, err)
	var out []vserver.DestinationKey
	for k, c := range counts {
		if _, still := d.asked[k]; still && d.judge(k, c, now) {
			out = append(out, k)
		}
	}
	d.counting, d.asked = nil, nil
	d.rested = now.Add(max(pollBudgetDivisor*d.spent, firstPoll))
	d.nextPoll = later(d.earliestPoll(), d.rested)
	return out
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// countable are the drained destinations whose turn it is, and whose weight is 0 in the
// kernel.
func (m *Manager) countable(now time.Time) map[vserver.DestinationKey]struct{} {
	out := map[vserver.DestinationKey]struct{}{}
	for k, one := range m.drains.all() {
		if now.Before(one.nextPoll) {
			continue
		}
		m.drains.of[k.Server][k] = m.drains.counted(one, now)
		if have, there := m.Believed(k); there && have.Weight == 0 {
			out[k] = struct{}{}
		}
	}
	return out
}

// counted sets the next poll of a drain whose turn it is.
func (d *drains) counted(one drain, now time.Time) drain {
	period := idlePollInterval
	if _, limited := one.deadline(); limited {
		period = pollInterval
	}
	one.nextPoll = d.nextTurn(now, period)
	return one
}

// firstPollOf returns when a new drain is counted: before its deadline, if that is soon.
func (d *drains) firstPollOf(one drain, now time.Time) time.Time {
	first := now.Add(firstPoll)
	turn := d.nextTurn(first, pollInterval)
	if end, limited := one.deadline(); limited && !turn.Before(end) {
		return first
	}
	return turn
}

// nextTurn returns the next of the times that all drains have in common. They are counted from
// a moment of this process: multiples of the time of day would be of a clock that is set.
func (d *drains) nextTurn(now time.Time, period time.Duration) time.Time {
	return d.began.Add(now.Sub(d.began).Truncate(period) + period)
}

// earliestPoll returns when the first of all is counted again; the zero time without any.
func (d *drains) earliestPoll() (first time.Time) {
	for _, one := range d.all() {
		if first.IsZero() || one.nextPoll.Before(first) {
			first = one.nextPoll
		}
	}
	return first
}

// judge records a count, and reports whether there is no connection.
func (d *drains) judge(k vserver.DestinationKey, c vserver.Connections, now time.Time) (idle bool) {
	one := d.of[k.Server][k]
	one.noActive, one.last, one.counted = c.Active == 0, c, true
	switch {
	case !one.noActive:
		one.idle = time.Time{}
	case !c.Idle(): // closed connections are kept for a minute or two
		one.idle = time.Time{}
		one.nextPoll = d.nextTurn(now, idlePollInterval)
	case one.idle.IsZero():
		one.idle = now
		fallthrough
	default: // if it stays it waits in the trash (selectForDelete)
		one.nextPoll = now.Add(idlePollInterval)
	}
	d.of[k.Server][k] = d.schedule(k, one) // it may not wait any more
	return c.Idle()
}

// logCountError logs, once, why connections cannot be counted.
func (m *Manager) logCountError(ctx context.Context, err error) {
	text := ""
	if err != nil && ctx.Err() == nil {
		text = err.Error()
	}
	if text != "" && text != m.drains.unread {
		m.log.Warn("cannot count connections, draining destinations stay until their drain time is over", zap.Error(err))
	}
	m.drains.unread = text
}

// due returns when drains need a pass; zero for never.
func (d *drains) due() time.Time {
	switch {
	case d.count == 0:
		return time.Time{}
	case len(d.leaving) > 0:
		return time.Now()
	case len(d.deadlines) > 0 && d.deadlines.next().Before(d.nextPoll):
		return d.deadlines.next()
	default:
		return d.nextPoll
	}
}
