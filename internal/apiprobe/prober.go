package apiprobe

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// MaxEndpoints is the number of endpoints that are probed, the first ones by address. A control
// plane has three or five; each further endpoint is served without probes.
const MaxEndpoints = 16

// timeout is the time that one probe may take.
const timeout = 2 * time.Second

// Options are the period of probes, and the receiver of their results.
type Options struct {
	// Period returns the time between two probes of an endpoint whose state is not in doubt; 0 probes
	// none. It is called after each Want.
	Period func() time.Duration
	// Dial probes one endpoint, and returns nil if it answers; nil is Handshake.
	Dial func(ctx context.Context, to netip.AddrPort) error
	// Changed receives the endpoints that fail, with the reason of each, after a change. Run calls it,
	// and it may wait until ctx ends. It must not change the map.
	Changed func(ctx context.Context, failing map[netip.AddrPort]string)
	// Random returns a number in [0, 1) that spreads the probes of many nodes; nil is rand.Float64.
	Random func() float64
}

// A Prober probes endpoints while Run runs. Want and Status may be called from any goroutine, Run by
// one at a time.
type Prober struct {
	log     *zap.Logger
	options Options
	wake    chan struct{} // one slot: wanted may have changed

	mu     sync.Mutex
	wanted []netip.AddrPort
	status Status
}

// Status is what the probes have found so far.
type Status struct {
	// Probed is the number of endpoints that are probed.
	Probed int
	// Out are failing endpoints that get no new connections, Ignored those that do all the same, because
	// too few others are left (model.EnoughAvailable).
	Out, Ignored int
	// Answered, Failed and Unknown count the probes by their result. Unknown is one that this machine
	// could not make.
	Answered, Failed, Unknown uint64
}

// New returns a prober that probes nothing until Want and Run are called.
func New(log *zap.Logger, o Options) *Prober {
	if o.Dial == nil {
		o.Dial = Handshake
	}
	if o.Random == nil {
		o.Random = rand.Float64
	}
	return &Prober{log: log.Named("apiprobe"), options: o, wake: make(chan struct{}, 1)}
}

// Want replaces the endpoints to probe. It never waits.
func (p *Prober) Want(endpoints []netip.AddrPort) {
	sorted := slices.Clone(endpoints)
	slices.SortFunc(sorted, netip.AddrPort.Compare)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wanted = slices.Compact(sorted)
	select {
	case p.wake <- struct{}{}:
	default: // Run will see this change, too
	}
}

// Status returns what the probes have found so far.
func (p *Prober) Status() Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.status
}

func (p *Prober) takeWanted() []netip.AddrPort {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.wanted
}

// Run probes until ctx ends, and returns nil then. No probe runs when it returns.
func (p *Prober) Run(ctx context.Context) error {
	r := &round{Prober: p, targets: map[netip.AddrPort]*target{}, results: make(chan result)}
	ctx, cancel := context.WithCancel(ctx)
	defer r.probes.Wait()
	defer cancel()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		timer.Reset(r.untilNext(time.Now()))
		select {
		case <-ctx.Done():
			return nil
		case <-p.wake:
			r.adopt(ctx, time.Now())
		case <-timer.C:
			r.start(ctx, time.Now())
		case one := <-r.results:
			r.take(ctx, one, time.Now())
		}
	}
}

// round has the endpoints that are probed now. It belongs to the goroutine of Run.
type round struct {
	*Prober
	period  time.Duration
	targets map[netip.AddrPort]*target
	results chan result
	probes  sync.WaitGroup
	// panicking: Status.Ignored is not 0.
	panicking bool
	dropped   int // endpoints beyond MaxEndpoints
}

// target is an endpoint that is probed.
type target struct {
	record
	due time.Time // time of the next probe
	// cancel ends the probe that runs, so that due is over; nil is none.
	cancel context.CancelFunc
}

// result is that of one probe. The target may be none any more.
type result struct {
	of  *target
	at  netip.AddrPort
	err error
}

// idle is the longest time that Run sleeps without a probe.
const idle = time.Hour

// untilNext returns the time until the next probe begins.
func (r *round) untilNext(now time.Time) time.Duration {
	next := idle
	for _, t := range r.targets {
		if t.cancel == nil {
			next = min(next, t.due.Sub(now))
		}
	}
	return max(0, next)
}

// adopt makes the targets those that are wanted. A new one is probed within the first period, at a
// time of this node's own: when an endpoint appears it does so on all nodes at once.
func (r *round) adopt(ctx context.Context, now time.Time) {
	wanted := r.takeWanted()
	if r.period = r.options.Period(); r.period <= 0 {
		wanted = nil
	}
	if n := max(0, len(wanted)-MaxEndpoints); n != r.dropped {
		if r.dropped = n; n > 0 {
			r.log.Warn("too many API server endpoints, some are not probed", zap.Int("more", n), zap.Int("most", MaxEndpoints))
		}
	}
	wanted = wanted[:min(len(wanted), MaxEndpoints)]
	lost := false
	for at, t := range r.targets {
		if !slices.Contains(wanted, at) {
			lost = lost || t.failing
			delete(r.targets, at)
			if t.cancel != nil {
				t.cancel()
			}
		}
	}
	for _, at := range wanted {
		if t := r.targets[at]; t == nil {
			r.targets[at] = &target{due: now.Add(time.Duration(r.options.Random() * float64(r.period)))}
		} else if soonest := now.Add(r.jittered(t)); t.due.After(soonest) {
			t.due = soonest // the period became shorter
		}
	}
	r.publish(ctx, lost)
}

// jittered returns the time until the next probe of a target, a tenth of it random in both directions.
func (r *round) jittered(t *target) time.Duration {
	pause := float64(t.pause(r.period))
	return time.Duration(pause * (0.9 + 0.2*r.options.Random()))
}

// start begins the probes that are due.
func (r *round) start(ctx context.Context, now time.Time) {
	for at, t := range r.targets {
		if t.cancel != nil || t.due.After(now) {
			continue
		}
		probe, cancel := context.WithTimeout(ctx, timeout)
		t.cancel = cancel
		r.probes.Go(func() {
			defer cancel()
			select {
			case r.results <- result{of: t, at: at, err: r.options.Dial(probe, at)}:
			case <-ctx.Done():
			}
		})
	}
}

// take records the result of a probe.
func (r *round) take(ctx context.Context, one result, now time.Time) {
	if ctx.Err() != nil || r.targets[one.at] != one.of {
		return // the probe was interrupted, or its endpoint is gone
	}
	t := one.of
	t.cancel = nil
	changed := false
	switch local := errors.Is(one.err, errLocal); {
	case local:
		r.count(func(s *Status) { s.Unknown++ })
		r.log.Debug("an API server endpoint cannot be probed", zap.Stringer("address", one.at), zap.Error(one.err))
	case one.err != nil:
		r.count(func(s *Status) { s.Failed++ })
		changed = t.add(one.err)
	default:
		r.count(func(s *Status) { s.Answered++ })
		changed = t.add(nil)
	}
	t.due = now.Add(r.jittered(t))
	if !changed {
		return
	}
	if t.failing {
		r.log.Warn("an API server endpoint does not answer probes", zap.Stringer("address", one.at), zap.String("reason", t.reason))
	} else {
		r.log.Info("an API server endpoint answers probes again", zap.Stringer("address", one.at))
	}
	r.publish(ctx, true)
}

func (r *round) count(change func(*Status)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(&r.status)
}

// publish updates the status, and passes on the endpoints that fail if they changed.
func (r *round) publish(ctx context.Context, changed bool) {
	failing := map[netip.AddrPort]string{}
	var total, bad [2]int
	for at, t := range r.targets {
		family := 0
		if at.Addr().Is6() {
			family = 1
		}
		total[family]++
		if t.failing {
			bad[family]++
			failing[at] = t.reason
		}
	}
	out, ignored := 0, 0
	for f := range total {
		if model.EnoughAvailable(total[f]-bad[f], total[f]) {
			out += bad[f]
		} else {
			ignored += bad[f]
		}
	}
	r.count(func(s *Status) { s.Probed, s.Out, s.Ignored = len(r.targets), out, ignored })
	if panicking := ignored > 0; panicking != r.panicking {
		if r.panicking = panicking; panicking {
			r.log.Warn("too few API server endpoints answer probes, so probes are ignored and all get connections", zap.Int("missing", ignored), zap.Int("of", len(r.targets)))
		} else {
			r.log.Info("enough API server endpoints answer probes again, so probes are respected")
		}
	}
	if changed {
		r.options.Changed(ctx, failing)
	}
}
