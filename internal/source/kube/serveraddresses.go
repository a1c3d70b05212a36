package kube

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"
)

// Reached has the addresses at which a client reaches its API server, or its proxy: configured
// ones, those that a name resolved to, and those that it dialled. A node that bound one of them
// would cut itself off from its API server permanently, so each is known before the first packet
// goes there.
type Reached struct {
	mu     sync.Mutex
	addrs  []netip.Addr // the newest last
	report func()
	// refused is called with each address and port that refused a connection.
	refused func(netip.AddrPort)
}

// mostReached bounds the addresses: a name that resolves to others each time pushes out the oldest.
const mostReached = 64

// Addrs returns the addresses, sorted.
func (r *Reached) Addrs() []netip.Addr {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.SortedFunc(slices.Values(r.addrs), netip.Addr.Compare)
}

// Tell registers a function that is called after each new address, on the goroutine of the client.
func (r *Reached) Tell(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.report = f
}

// Refused registers a function that is called with each address and port that refused a connection, on the
// goroutine of the client.
func (r *Reached) Refused(f func(netip.AddrPort)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refused = f
}

func (r *Reached) tellRefused(tried []netip.AddrPort) {
	r.mu.Lock()
	refused := r.refused
	r.mu.Unlock()
	if refused == nil {
		return
	}
	for _, at := range tried {
		refused(at)
	}
}

func (r *Reached) add(addrs ...netip.Addr) {
	r.mu.Lock()
	news := false
	for _, a := range addrs {
		a = a.Unmap().WithZone("")
		if !a.IsValid() || a.IsLoopback() || slices.Contains(r.addrs, a) {
			continue
		}
		r.addrs, news = append(r.addrs, a), true
	}
	r.addrs = slices.Delete(r.addrs, 0, max(0, len(r.addrs)-mostReached))
	tell := r.report
	r.mu.Unlock()
	if news && tell != nil {
		tell()
	}
}

// dialTime is client-go's own (k8s.io/client-go/transport, tlsTransportCache.get), for
// connecting and between probes of a connection that is idle.
const dialTime = 30 * time.Second

// dial connects as client-go does, and notes each address before.
func (r *Reached) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if host, _, err := net.SplitHostPort(address); err == nil && net.ParseIP(host) == nil {
		if all, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host); err == nil { // the dialer returns the error
			r.add(all...)
		}
	}
	var mu sync.Mutex
	var tried []netip.AddrPort // both families may be tried at once
	dialer := net.Dialer{Timeout: dialTime, KeepAlive: dialTime, ControlContext: func(_ context.Context, _, address string, _ syscall.RawConn) error {
		if to, err := netip.ParseAddrPort(address); err == nil {
			r.add(to.Addr())
			mu.Lock()
			defer mu.Unlock()
			tried = append(tried, netip.AddrPortFrom(to.Addr().Unmap(), to.Port()))
		}
		return nil
	}}
	conn, err := dialer.DialContext(ctx, network, address)
	if errors.Is(err, syscall.ECONNREFUSED) {
		mu.Lock()
		defer mu.Unlock()
		r.tellRefused(tried)
	}
	return conn, err
}
