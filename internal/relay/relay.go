package relay

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// Options are the limits of a Relay; 0 is the default of each.
type Options struct {
	// Connect is the time in which a target has to accept a connection (5 s).
	Connect time.Duration
	// Idle is the time without data after which a connection ends at the earliest (1 h); it
	// takes half of that longer at most.
	Idle time.Duration
	// IdleUDP is the time without a datagram after which a flow ends (1 min).
	IdleUDP time.Duration
	// Most is the number of connections, and of flows, in all (2,048); a port has a quarter of
	// them at most.
	Most int
	// Retry is the time until a port that cannot be opened is tried again (1 s). It doubles up to
	// retryMost.
	Retry time.Duration
}

const retryMost = 30 * time.Second

func (o Options) withDefaults() Options {
	o.Connect = cmp.Or(o.Connect, 5*time.Second)
	o.Idle = cmp.Or(o.Idle, time.Hour)
	o.IdleUDP = cmp.Or(o.IdleUDP, time.Minute)
	o.Most = cmp.Or(o.Most, 2048)
	o.Retry = cmp.Or(o.Retry, time.Second)
	return o
}

// Relay serves the ports of all Services. Its methods may be called from any goroutine, Run by one
// at a time.
type Relay struct {
	log   *zap.Logger
	opts  Options
	wake  chan struct{} // one slot: there are dirty keys
	lost  chan loss
	usage map[model.Protocol]*usage
	group sync.WaitGroup // everything that Run started

	mu     sync.Mutex
	wanted map[model.ServiceID][]model.Relay
	claims map[model.FrontendKey]map[model.ServiceID]model.Relay
	dirty  map[model.FrontendKey]struct{}
	ports  map[model.FrontendKey]*port // written by Run
}

// usage counts what is open over one protocol, and how often the limit was met.
type usage struct {
	open    atomic.Int64
	limited atomic.Uint64
}

// loss is a socket that stopped by itself.
type loss struct {
	*port
	err error
}

// New returns a relay without ports.
func New(log *zap.Logger, o Options) *Relay {
	return &Relay{
		log: log.Named("relay"), opts: o.withDefaults(), wake: make(chan struct{}, 1), lost: make(chan loss),
		usage:  map[model.Protocol]*usage{model.TCP: {}, model.UDP: {}},
		wanted: map[model.ServiceID][]model.Relay{}, claims: map[model.FrontendKey]map[model.ServiceID]model.Relay{},
		dirty: map[model.FrontendKey]struct{}{}, ports: map[model.FrontendKey]*port{},
	}
}

// Set replaces the ports of a Service. It never waits for a socket.
func (r *Relay) Set(id model.ServiceID, list []model.Relay) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, one := range r.wanted[id] {
		delete(r.claims[one.Key], id)
		r.dirty[one.Key] = struct{}{}
	}
	delete(r.wanted, id)
	for _, one := range list {
		if r.claims[one.Key] == nil {
			r.claims[one.Key] = map[model.ServiceID]model.Relay{}
		}
		r.claims[one.Key][id] = one
		r.dirty[one.Key] = struct{}{}
		r.wanted[id] = list
	}
	select {
	case r.wake <- struct{}{}:
	default: // Run will see this change, too
	}
}

// Run opens and closes ports until ctx ends, and then ends all connections. It returns nil.
func (r *Relay) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer r.group.Wait()
	defer cancel()
	failed, delay := map[model.FrontendKey]struct{}{}, r.opts.Retry
	var retry <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			r.end()
			return nil
		case <-r.wake:
			r.settle(ctx, r.takeDirty(), false, failed)
		case l := <-r.lost:
			l.fail(l.err)
			failed[l.key] = struct{}{}
		case <-retry:
			retry, delay = nil, min(2*delay, retryMost)
			r.settle(ctx, slices.Collect(maps.Keys(failed)), true, failed)
		}
		switch {
		case len(failed) == 0:
			retry, delay = nil, r.opts.Retry
		case retry == nil:
			retry = time.After(delay)
		}
	}
}

// settle brings some ports to what is wanted of them. Those that failed before are tried in a retry.
func (r *Relay) settle(ctx context.Context, keys []model.FrontendKey, retry bool, failed map[model.FrontendKey]struct{}) {
	for _, k := range keys {
		if ctx.Err() != nil {
			return
		}
		delete(failed, k)
		if p := r.assign(ctx, k); p != nil && !p.settle(ctx, retry) {
			failed[k] = struct{}{}
		}
	}
}

// end closes all ports.
func (r *Relay) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for k, p := range r.ports {
		p.end()
		r.dirty[k] = struct{}{} // for another Run
	}
	clear(r.ports)
}

func (r *Relay) takeDirty() []model.FrontendKey {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer clear(r.dirty)
	return slices.SortedFunc(maps.Keys(r.dirty), model.FrontendKey.Compare)
}

// assign returns the port of a key with its Service and its targets; nil if no Service wants it. The
// Service that has the port keeps it, otherwise the first by name gets it.
func (r *Relay) assign(ctx context.Context, k model.FrontendKey) *port {
	r.mu.Lock()
	defer r.mu.Unlock()
	claims, p := r.claims[k], r.ports[k]
	if p != nil {
		if want, keeps := claims[p.service]; keeps {
			p.setTargets(want)
			return p
		}
		p.end()
		delete(r.ports, k)
	}
	if len(claims) == 0 {
		delete(r.claims, k)
		return nil
	}
	id := slices.MinFunc(slices.Collect(maps.Keys(claims)), model.ServiceID.Compare)
	p = newPort(ctx, r, k, id)
	p.setTargets(claims[id])
	r.ports[k] = p
	return p
}

// State returns why a port of a Service is not open; empty if it is, or is not to be.
func (r *Relay) State(k model.FrontendKey, id model.ServiceID) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.ports[k]
	if p == nil {
		return ""
	}
	if p.service != id {
		return "the port belongs to " + p.service.String()
	}
	if _, err := p.state(); err != nil {
		return err.Error()
	}
	return ""
}

// Counts are what metrics show.
type Counts struct {
	// Open and Failed ports.
	Open, Failed int
	// Connections that are open, and how often one met the limit, by protocol.
	Connections, Limited map[model.Protocol]uint64
}

// Counts returns the counts as they are now.
func (r *Relay) Counts() Counts {
	c := Counts{Connections: map[model.Protocol]uint64{}, Limited: map[model.Protocol]uint64{}}
	for proto, u := range r.usage {
		c.Connections[proto], c.Limited[proto] = uint64(u.open.Load()), u.limited.Load()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.ports {
		switch open, err := p.state(); {
		case open:
			c.Open++
		case err != nil:
			c.Failed++
		}
	}
	return c
}
