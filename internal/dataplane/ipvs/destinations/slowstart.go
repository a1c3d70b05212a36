package destinations

import (
	"maps"
	"net/netip"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// A new backend of a frontend with a slow start (model.Frontend.SlowStart) begins with the smallest
// weight. The weight rises to the full weight over that time, while the peers carry the load.
// Without a warm peer it has its full weight at once: so has a Service that begins.
//
// All weights of such a frontend are multiplied (scale), so that a warm-up has steps. The present
// weight is desired state like any other, so it survives a failed write, an audit and a lost
// server. Nothing is stored for a restart: the weight of a destination that is found beside peers
// of full weight shows how far its warm-up had come.

// slowStart is the state of all warm-ups, by their server, and of arrivals since the last pass.
type slowStart struct {
	of    map[vserver.ServerKey]map[vserver.DestinationKey]warmup
	count int
	// next is when a step is due; it has no meaning without a warm-up.
	next time.Time
	// news are the frontends with a slow start that have changed. Whether a backend is new
	// beside others depends on the kernel, which is read after the first changes come.
	news map[vserver.ServerKey]arrivals
	// initialFillUntil: until then an empty kernel is filled in parts, and slow start does not
	// apply.
	initialFillUntil time.Time
}

// arrivals are the backends of a frontend that had no weight before: all of them, if the frontend
// is new to this process.
type arrivals struct {
	all   bool
	addrs map[netip.AddrPort]struct{}
}

func (n arrivals) has(b model.Backend) bool {
	_, has := n.addrs[b.Addr]
	return has || n.all
}

// warmup is the state of one destination in slow start.
type warmup struct {
	// window is the time of a whole warm-up, done the part of it that was over at since.
	window, done time.Duration
	since        time.Time
}

const (
	// warmupSteps is the number of steps of a warm-up, unless they were closer than minStep. Fewer
	// steps make the common divisor of all weights larger, and shorten the series of connections in
	// which wrr skips a destination of small weight (ip_vs_wrr_gcd_weight).
	warmupSteps = 20
	minStep     = time.Second
	// initialFill bounds the time in which an empty kernel is filled, where some input cannot be
	// read and so no pass is the last of it.
	initialFill = time.Minute
)

func newSlowStart() slowStart {
	return slowStart{of: map[vserver.ServerKey]map[vserver.DestinationKey]warmup{}, news: map[vserver.ServerKey]arrivals{}}
}

// step returns the time between two steps.
func (c warmup) step() time.Duration { return max(c.window/warmupSteps, minStep) }

// end is when the warmup is over.
func (c warmup) end() time.Time { return c.since.Add(c.window - c.done) }

// at is the part of the window that lies behind by the latest step.
func (c warmup) at(now time.Time) time.Duration {
	if !now.Before(c.end()) {
		return c.window
	}
	return c.done + now.Sub(c.since).Truncate(c.step())
}

// due is when the next step is.
func (c warmup) due(now time.Time) time.Time {
	next := c.since.Add(now.Sub(c.since).Truncate(c.step()) + c.step())
	if end := c.end(); end.Before(next) {
		return end
	}
	return next
}

// weight is the weight of a destination whose own is full, which is not 0.
func (c warmup) weight(now time.Time, full uint16) uint16 {
	window := uint64(c.window)
	return max(uint16((uint64(full)*uint64(c.at(now))+window-1)/window), 1)
}

// over takes the fraction that lies behind to another window.
func (c warmup) over(now time.Time, window time.Duration) warmup {
	if c.window == window {
		return c
	}
	return warmup{window: window, done: time.Duration(float64(c.at(now)) / float64(c.window) * float64(window)), since: now}
}

// found is the warmup that has brought a destination to a weight.
func found(now time.Time, window time.Duration, weight, full uint16) warmup {
	return warmup{window: window, done: window * time.Duration(weight) / time.Duration(full), since: now}
}

func (r *slowStart) get(k vserver.DestinationKey) (warmup, bool) {
	c, ok := r.of[k.Server][k]
	return c, ok
}

func (r *slowStart) set(k vserver.DestinationKey, c warmup, now time.Time) {
	if r.of[k.Server] == nil {
		r.of[k.Server] = map[vserver.DestinationKey]warmup{}
	}
	if _, had := r.of[k.Server][k]; !had {
		if r.count++; r.count == 1 {
			r.next = time.Time{}
		}
	}
	r.of[k.Server][k] = c
	r.wake(c, now)
}

// wake arranges for the next step of a warmup, but all that are due in one minStep go
// together.
func (r *slowStart) wake(c warmup, now time.Time) {
	due := c.due(now)
	if soon := now.Add(minStep); due.Before(soon) {
		due = soon
	}
	if r.next.IsZero() || due.Before(r.next) {
		r.next = due
	}
}

// forget is for one that does not warmup any more.
func (r *slowStart) forget(k vserver.DestinationKey) {
	if _, had := r.get(k); !had {
		return
	}
	delete(r.of[k.Server], k)
	if len(r.of[k.Server]) == 0 {
		delete(r.of, k.Server)
	}
	r.count--
}

// due is when some step is; zero for never.
func (r *slowStart) due() time.Time {
	if r.count == 0 {
		return time.Time{}
	}
	return r.next
}

// noteLoad notes, when the kernel was read, whether it is to be filled from nothing.
func (m *Manager) noteLoad() {
	m.slow.initialFillUntil = time.Now().Add(initialFill)
	for range m.servers.Actual() {
		m.slow.initialFillUntil = time.Time{}
		return
	}
}

// scale is the factor for the weights of a frontend, so that a warm-up to the smallest has steps,
// too: the largest factor that the largest weight allows. All of them are, so their proportions
// stay, and the plan has no slow start for schedulers to which it would matter.
func scale(f *model.Frontend) uint16 {
	if f == nil || f.SlowStart == 0 {
		return 1
	}
	most := uint16(0)
	for _, b := range f.Backends {
		most = max(most, b.Weight)
	}
	for _, by := range []uint16{100, 10} {
		if uint32(most)*uint32(by) <= maxWeight {
			return by
		}
	}
	return 1
}

// maxWeight is the largest that a destination may have here (vserver.Destination).
const maxWeight = 65535

// noteArrivals records, until the next pass, which backends came to a frontend.
func (r *slowStart) noteArrivals(c dataplane.Change) {
	server := c.Key
	if c.New == nil || c.New.SlowStart == 0 {
		delete(r.news, server)
		r.count -= len(r.of[server])
		delete(r.of, server)
		return
	}
	n := r.news[server]
	n.all = n.all || c.Old == nil
	for _, b := range c.New.Backends {
		if weight, _ := weightOf(backends(c.Old), b.Addr); weight == 0 && b.Weight > 0 && !n.all {
			if n.addrs == nil {
				n.addrs = map[netip.AddrPort]struct{}{}
			}
			n.addrs[b.Addr] = struct{}{}
		}
	}
	r.news[server] = n
}

// warm starts the warm-ups of arrivals, and takes the steps that are due. Without arrivals and due
// steps it costs nothing, for any number of destinations in slow start. The last pass that fills an
// empty kernel is the first with all inputs read (toldAll).
func (m *Manager) warm(now time.Time, toldAll bool) {
	r := &m.slow
	for server, news := range r.news {
		if f, ok := m.frontends.Get(server); ok {
			m.startWarmups(server, &f, news, now)
		}
	}
	clear(r.news)
	if toldAll {
		r.initialFillUntil = time.Time{}
	}
	if r.count > 0 && !now.Before(r.next) {
		m.advance(now)
	}
}

// startWarmups decides which backends of a frontend begin a slow start.
func (m *Manager) startWarmups(server vserver.ServerKey, f *model.Frontend, news arrivals, now time.Time) {
	by, alike := scale(f), news.all && m.uniformWeights(server, f)
	if now.Before(m.slow.initialFillUntil) || !m.hasFullWeightPeer(server, f, news, alike, by) {
		m.settle(server, f, by)
		return
	}
	for _, b := range f.Backends {
		k, full := Key(server, b.Addr), b.Weight*by
		c, climbs := m.slow.get(k)
		have, _ := m.Believed(k)
		switch {
		case full == 0:
			m.slow.forget(k)
			continue
		case climbs:
			c = c.over(now, f.SlowStart)
		case !news.has(b) || have.Weight >= full || have.Weight > 0 && alike:
			continue
		default:
			c = found(now, f.SlowStart, have.Weight, full)
		}
		m.slow.set(k, c, now)
		m.SetDesired(k, render(f, c.weight(now, full)))
	}
}

// hasFullWeightPeer reports whether some backend of a frontend is in the kernel with its full weight,
// or with the full weight that it had until now.
func (m *Manager) hasFullWeightPeer(server vserver.ServerKey, f *model.Frontend, news arrivals, alike bool, by uint16) bool {
	for _, b := range f.Backends {
		k, full := Key(server, b.Addr), b.Weight*by
		_, climbs := m.slow.get(k)
		have, _ := m.Believed(k)
		carries := have.Weight >= full || have.Weight > 0 && alike
		if !news.has(b) {
			carries = !climbs && m.MayBeThere(k)
		}
		if full > 0 && carries {
			return true
		}
	}
	return false
}

// uniformWeights reports whether all backends that were found in the kernel have one weight there.
// None of them gets a slow start, then: kube-proxy or an earlier configuration wrote them, and they
// get their full weights in one batch.
func (m *Manager) uniformWeights(server vserver.ServerKey, f *model.Frontend) bool {
	one := uint16(0)
	for _, b := range f.Backends {
		have, _ := m.Believed(Key(server, b.Addr))
		switch {
		case b.Weight == 0 || have.Weight == 0 || have.Weight == one:
		case one == 0:
			one = have.Weight
		default:
			return false
		}
	}
	return true
}

// settle ends all warm-ups of a server, which has no warm peer left to take the load.
func (m *Manager) settle(server vserver.ServerKey, f *model.Frontend, by uint16) {
	for k := range maps.Clone(m.slow.of[server]) {
		weight, _ := weightOf(f.Backends, netip.AddrPortFrom(k.Addr, k.Port))
		m.SetDesired(k, render(f, weight*by))
		m.slow.forget(k)
	}
}

// advance takes the due steps of all warm-ups.
func (m *Manager) advance(now time.Time) {
	r := &m.slow
	r.next = time.Time{}
	for server, list := range r.of {
		f, _ := m.frontends.Get(server)
		by := scale(&f)
		for k, c := range list {
			weight, _ := weightOf(f.Backends, netip.AddrPortFrom(k.Addr, k.Port))
			m.SetDesired(k, render(&f, c.weight(now, weight*by)))
			if !now.Before(c.end()) {
				r.forget(k)
				continue
			}
			r.wake(c, now)
		}
	}
}
