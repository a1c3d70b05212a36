package healthcheck

import (
	"cmp"
	"context"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// ListenFunc opens a TCP socket; (*net.ListenConfig).Listen is one.
type ListenFunc func(ctx context.Context, network, address string) (net.Listener, error)

// Options say what the answers depend on, and how sockets are made.
type Options struct {
	// Healthy reports whether the proxy is healthy; nil means always. It is called for every
	// request, by many goroutines.
	Healthy func() bool
	// Listen opens sockets; nil uses the network.
	Listen ListenFunc
	// Failed is called when a port of a Service cannot be opened, once for each reason. It may be
	// nil. It is called by Run and must not wait.
	Failed func(id model.ServiceID, address netip.AddrPort, err error)
	// Retry is the time after which ports that could not be opened are tried again;
	// 0 is 5 s.
	Retry time.Duration
}

func (o Options) withDefaults() Options {
	if o.Healthy == nil {
		o.Healthy = func() bool { return true }
	}
	if o.Failed == nil {
		o.Failed = func(model.ServiceID, netip.AddrPort, error) {}
	}
	if o.Listen == nil {
		o.Listen = (&net.ListenConfig{}).Listen
	}
	o.Retry = cmp.Or(o.Retry, 5*time.Second)
	return o
}

// Servers has one HTTP server for each health-check port, family and address. All
// methods may be called at any time from any goroutine, Run by one at a time.
type Servers struct {
	log     *zap.Logger
	options Options
	wake    chan struct{} // one slot: there is something to do

	mu      sync.Mutex
	desired desiredPorts
	status  map[slot][]PortStatus // as Run left it
}

// New makes servers that serve as soon as Run runs and Listen has said where.
func New(log *zap.Logger, o Options) *Servers {
	return &Servers{
		log: log.Named("healthcheck"), options: o.withDefaults(), wake: make(chan struct{}, 1),
		desired: newDesiredPorts(), status: map[slot][]PortStatus{},
	}
}

// Set takes the health check of a Service; the zero HealthCheck, or one without a
// port, wants nothing. It never waits for a socket.
func (s *Servers) Set(id model.ServiceID, h model.HealthCheck) {
	s.change(func(w *desiredPorts) { w.set(id, h) })
}

// Listen sets the addresses of this node at which the ports are opened: those
// given, or, with all, every one there is. Until it is called nothing is opened.
func (s *Servers) Listen(addrs []netip.Addr, all bool) {
	s.change(func(w *desiredPorts) { w.listen(addrs, all) })
}

// change changes the desired ports and wakes Run.
func (s *Servers) change(f func(*desiredPorts)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(&s.desired)
	select {
	case s.wake <- struct{}{}:
	default: // it will see this change, too
	}
}

// Run opens, serves and closes ports until ctx ends; everything is closed when it
// returns, and it returns nil.
func (s *Servers) Run(ctx context.Context) error {
	k := newListenerManager(s.log, s.options)
	defer s.forget()
	defer k.close()
	s.change((*desiredPorts).all)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.wake:
			s.settle(ctx, k, s.take())
		case l := <-k.lost:
			s.report(l.slot, k.drop(l))
		case <-k.retry:
			k.retry = nil
			s.settle(ctx, k, s.again(k.rested()))
		}
	}
}

// settle brings ports to what is wanted of them, without holding the lock.
func (s *Servers) settle(ctx context.Context, k *listenerManager, list []desiredPort) {
	for _, w := range list {
		if ctx.Err() != nil {
			return
		}
		s.report(w.slot, k.settle(ctx, w))
	}
}

func (s *Servers) take() []desiredPort {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.desired.take()
}

// again returns the desired ports for some ports.
func (s *Servers) again(slots []slot) []desiredPort {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, at := range slots {
		s.desired.dirty[at] = struct{}{}
	}
	return s.desired.take()
}

func (s *Servers) report(at slot, rows []PortStatus) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(rows) == 0 {
		delete(s.status, at)
		return
	}
	s.status[at] = rows
}

// forget empties the status: nothing is open any more.
func (s *Servers) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.status)
}

// PortStatus is one health-check port of one Service at one address.
type PortStatus struct {
	// Address is where it listens, or should; an address of zeros is every address
	// of its family.
	Address netip.AddrPort
	Service model.ServiceID
	// Ready is the number of endpoints that it answers.
	Ready     int
	Listening bool
	// Error is why it does not listen; empty if it does.
	Error string
}

// Status lists the state of all desired ports, sorted by port, address and Service.
func (s *Servers) Status() []PortStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []PortStatus
	for _, rows := range s.status {
		out = append(out, rows...)
	}
	slices.SortFunc(out, func(a, b PortStatus) int {
		return cmp.Or(cmp.Compare(a.Address.Port(), b.Address.Port()), a.Address.Compare(b.Address), a.Service.Compare(b.Service))
	})
	return out
}
