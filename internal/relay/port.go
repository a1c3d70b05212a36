package relay

import (
	"context"
	"io"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// port is one NodePort on one loopback address, as long as one Service has it.
type port struct {
	relay   *Relay
	key     model.FrontendKey
	service model.ServiceID
	log     *zap.Logger
	usage   *usage // of its protocol
	// ctx ends with the port, and with it all its connections.
	ctx    context.Context
	cancel context.CancelFunc

	open   atomic.Int64 // connections or flows
	warned atomic.Int64 // time of the latest warning of the limit

	mu      sync.Mutex
	socket  io.Closer // nil: it does not listen
	flows   *flows    // of socket, UDP alone
	err     error     // why it does not listen
	targets []netip.AddrPort
	pin     pin
}

// pin is the target of clients under session affinity.
type pin struct {
	timeout time.Duration
	target  netip.AddrPort
	until   time.Time
}

func newPort(ctx context.Context, r *Relay, k model.FrontendKey, id model.ServiceID) *port {
	p := &port{relay: r, key: k, service: id, usage: r.usage[k.Protocol]}
	p.log = r.log.With(zap.Stringer("service", id), zap.Stringer("address", k))
	p.ctx, p.cancel = context.WithCancel(ctx)
	return p
}

// pick returns the target of a new connection; the zero AddrPort if there is none.
func (p *port) pick() netip.AddrPort {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.targets) == 0 {
		return netip.AddrPort{}
	}
	now := time.Now()
	if p.pin.timeout == 0 || now.After(p.pin.until) || !slices.Contains(p.targets, p.pin.target) {
		p.pin.target = p.targets[rand.IntN(len(p.targets))]
	}
	p.pin.until = now.Add(p.pin.timeout)
	return p.pin.target
}

// take counts a new connection, unless the port or all ports have as many as they may have.
func (p *port) take() bool {
	most := int64(p.relay.opts.Most)
	if p.open.Add(1) <= max(1, most/4) {
		if p.usage.open.Add(1) <= most {
			return true
		}
		p.usage.open.Add(-1)
	}
	p.open.Add(-1)
	return false
}

// release counts the end of a connection.
func (p *port) release() {
	p.open.Add(-1)
	p.usage.open.Add(-1)
}

// limited counts a connection that met the limit, and warns once a minute.
func (p *port) limited(consequence string) {
	p.usage.limited.Add(1)
	now, last := time.Now().UnixNano(), p.warned.Load()
	if now-last >= int64(time.Minute) && p.warned.CompareAndSwap(last, now) {
		p.log.Warn("localhost NodePort has as many connections as it may have: "+consequence, zap.Int("most", p.relay.opts.Most))
	}
}
