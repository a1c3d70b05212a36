package healthcheck

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
)

// listenerManager holds the sockets. Only Run's goroutine touches it.
type listenerManager struct {
	log     *zap.Logger
	options Options
	ports   map[slot]*port
	retry   <-chan time.Time // nil while nothing has failed
	lost    chan loss
	done    chan struct{}  // closed when no goroutine receives from lost any more
	group   sync.WaitGroup // goroutines that serve or say good-bye
}

// port is a slot that at least one Service wants.
type port struct {
	replier *replier
	holder  claim
	losers  []claim
	open    map[netip.Addr]*listener
	failed  map[netip.Addr]*failure
}

// failure is a socket that could not be had. It rests until retry comes round, so
// that a busy Service does not knock with every change of a count.
type failure struct {
	err      error
	attempts int
	resting  bool
}

func newListenerManager(log *zap.Logger, o Options) *listenerManager {
	return &listenerManager{log: log, options: o, ports: map[slot]*port{}, lost: make(chan loss), done: make(chan struct{})}
}

// settle opens and closes the listeners of a port as desired, and returns its status. Unwanted
// listeners are closed first, because a listener on all addresses and one on a single address
// exclude each other.
func (k *listenerManager) settle(ctx context.Context, w desiredPort) []PortStatus {
	p := k.ports[w.slot]
	if len(w.claims) == 0 {
		k.closePort(w.slot, p)
		return nil
	}
	if p == nil {
		p = &port{replier: &replier{healthy: k.options.Healthy}, open: map[netip.Addr]*listener{}, failed: map[netip.Addr]*failure{}}
		k.ports[w.slot] = p
	}
	k.assign(w, p)
	for a, l := range p.open {
		if !slices.Contains(w.addrs, a) {
			k.closeListener(p, l)
		}
	}
	maps.DeleteFunc(p.failed, func(a netip.Addr, _ *failure) bool { return !slices.Contains(w.addrs, a) })
	for _, a := range w.addrs {
		k.openListener(ctx, w.slot, p, a)
	}
	return p.rows(w.slot)
}

// assign gives the port to the Service that has it already, else to the first by
// name: a newcomer does not take from one that works.
func (k *listenerManager) assign(w desiredPort, p *port) {
	i := max(0, slices.IndexFunc(w.claims, func(c claim) bool { return c.service == p.holder.service }))
	losers := slices.Delete(slices.Clone(w.claims), i, i+1)
	if len(p.losers) > 0 && p.holder.service != w.claims[i].service {
		k.log.Info("health-check port moved to another Service", zap.Stringer("service", w.claims[i].service), zap.Stringer("before", p.holder.service), zap.Uint16("port", w.slot.port), zap.Stringer("family", w.slot.family))
	}
	p.holder = w.claims[i]
	p.replier.claim.Store(&w.claims[i])
	for _, c := range losers {
		if !slices.ContainsFunc(p.losers, func(was claim) bool { return was.service == c.service }) {
			k.log.Warn("health-check port belongs to another Service; this Service gets it when the other one releases it",
				zap.Stringer("service", c.service), zap.Stringer("holder", p.holder.service), zap.Uint16("port", w.slot.port), zap.Stringer("family", w.slot.family))
		}
	}
	p.losers = losers
}

// openListener tries to listen at an address, unless it does or that failed a
// moment ago.
func (k *listenerManager) openListener(ctx context.Context, at slot, p *port, a netip.Addr) {
	f := p.failed[a]
	if p.open[a] != nil || f != nil && f.resting {
		return
	}
	address := netip.AddrPortFrom(a, at.port)
	inner, err := k.options.Listen(ctx, at.network(), address.String())
	if err != nil {
		k.fail(p, address, fmt.Errorf("listen on %s: %w", address, err))
		return
	}
	delete(p.failed, a)
	l := &listener{Listener: inner, server: k.newServer(p.replier), slot: at, addr: a}
	p.open[a] = l
	k.group.Go(func() { k.serve(l) })
	k.log.Info("answering on health-check port", zap.Stringer("service", p.holder.service), zap.Stringer("address", address))
}

// fail notes a socket that could not be had and sets the time for another try. It is reported once,
// and again when the reason changes.
func (k *listenerManager) fail(p *port, address netip.AddrPort, err error) {
	f := p.failed[address.Addr()]
	if f == nil {
		f = &failure{}
		p.failed[address.Addr()] = f
	}
	say := k.log.Debug
	if f.err == nil || f.err.Error() != err.Error() {
		say = k.log.Warn
		k.options.Failed(p.holder.service, address, err)
	}
	f.err, f.resting = err, true
	f.attempts++
	say("cannot listen on the health-check port, will be tried again", zap.Stringer("service", p.holder.service), zap.Stringer("address", address),
		zap.String("reason", "FailedToStartServiceHealthcheck"), zap.Int("attempt", f.attempts), zap.Error(err))
	if k.retry == nil {
		k.retry = time.After(k.options.Retry)
	}
}

// rested lists the ports with a socket that is to be tried again, and lets it be.
func (k *listenerManager) rested() []slot {
	var out []slot
	for at, p := range k.ports {
		for _, f := range p.failed {
			f.resting = false
		}
		if len(p.failed) > 0 {
			out = append(out, at)
		}
	}
	return out
}

// drop takes away a listener whose socket broke.
func (k *listenerManager) drop(l loss) []PortStatus {
	p := k.ports[l.slot]
	if p == nil {
		return nil
	}
	if p.open[l.addr] == l.listener { // else it was closed in the meantime
		k.closeListener(p, l.listener)
		k.fail(p, netip.AddrPortFrom(l.addr, l.slot.port), l.err)
	}
	return p.rows(l.slot)
}

// rows are the status of a port.
func (p *port) rows(at slot) []PortStatus {
	var out []PortStatus
	add := func(a netip.Addr, c claim, reason string) {
		out = append(out, PortStatus{Address: netip.AddrPortFrom(a, at.port), Service: c.service, Ready: c.ready, Listening: reason == "", Error: reason})
	}
	for a := range p.open {
		add(a, p.holder, "")
	}
	for a, f := range p.failed {
		add(a, p.holder, f.err.Error())
	}
	if len(out) == 0 && !p.holder.other {
		add(at.everywhere(), p.holder, "NodePorts have no "+at.family.String()+" address on this node")
	}
	for _, c := range p.losers {
		add(at.everywhere(), c, "the port belongs to "+p.holder.service.String())
	}
	return out
}
