package linktest

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/link"
)

// queue keeps events for a watch that is busy; like the kernel it never blocks
// the goroutine that causes them.
type queue struct {
	events []link.Event
	poke   chan struct{}
}

// Watch does what link.Handle.Watch does.
func (f *Fake) Watch(ctx context.Context, tell func(link.Event)) error {
	if err := f.enter(ctx, Watch); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	q := &queue{poke: make(chan struct{}, 1)}
	if err := f.subscribe(q); err != nil {
		return err
	}
	defer f.unsubscribe()
	tell(link.Event{Kind: link.Ready})
	for {
		select {
		case <-q.poke:
			for _, e := range f.take(q) {
				tell(e)
			}
		case <-ctx.Done():
			return nil
		case <-f.closed:
			return nil
		}
	}
}

func (f *Fake) subscribe(q *queue) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.watch != nil {
		return fmt.Errorf("watch link %s twice: %w", f.name, link.ErrBusy)
	}
	f.watch = q
	return nil
}

func (f *Fake) unsubscribe() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.watch = nil
}

func (f *Fake) take(q *queue) []link.Event {
	f.mu.Lock()
	defer f.mu.Unlock()
	events := q.events
	q.events = nil
	return events
}

// send queues events for the watch, if there is one. The caller holds the lock.
func (f *Fake) send(events ...link.Event) {
	if f.watch == nil {
		return
	}
	f.watch.events = append(f.watch.events, events...)
	select {
	case f.watch.poke <- struct{}{}:
	default:
	}
}

// LoseAddress removes an address as another program would, and notifies the watch.
func (f *Fake) LoseAddress(a netip.Addr) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, bound := f.addrs[a]; bound {
		delete(f.addrs, a)
		f.send(link.Event{Kind: link.OurAddressLost, Addr: a})
	}
}

// LoseRoute removes a local route of ours as another program would, and notifies the watch.
func (f *Fake) LoseRoute(p netip.Prefix) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.routes[p] {
		delete(f.routes, p)
		f.send(link.Event{Kind: link.OurRouteLost, Route: p})
	}
}

// AddRouteByHand makes a range local by a route that is not ours; where there is one of
// ours it changes nothing.
func (f *Fake) AddRouteByHand(p netip.Prefix) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, there := f.routes[p]; !there {
		f.routes[p] = false
	}
}

// RemoveRouteByHand removes a local route that is not ours.
func (f *Fake) RemoveRouteByHand(p netip.Prefix) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if ours, there := f.routes[p]; there && !ours {
		delete(f.routes, p)
	}
}

// LoseLink removes the link as another program would: the watch is notified of every address and
// then of the link.
func (f *Fake) LoseLink() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.kind == "" {
		return
	}
	for _, a := range slices.SortedFunc(maps.Keys(f.addrs), netip.Addr.Compare) {
		f.send(link.Event{Kind: link.OurAddressLost, Addr: a})
	}
	f.send(link.Event{Kind: link.OurLinkLost})
	f.kind = ""
	clear(f.addrs)
}

// Overrun makes the watch lose what it has not told yet, and say so.
func (f *Fake) Overrun() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.count.Overruns++
	if f.watch != nil {
		f.watch.events = nil
	}
	f.send(link.Event{Kind: link.Overrun})
}

// Occupy puts a link of another type, such as "bridge", under our name.
func (f *Fake) Occupy(kind string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.kind = kind
	clear(f.addrs)
}

// WithoutDummy makes the kernel one that has no dummy links.
func (f *Fake) WithoutDummy() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dummy = false
}

// AddElsewhere puts an address on another link and tells the watch.
func (f *Fake) AddElsewhere(a netip.Addr, name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.local[a] = name
	f.send(link.Event{Kind: link.NodeAddressesChanged, Addr: a})
}

// RemoveElsewhere takes an address off another link and tells the watch.
func (f *Fake) RemoveElsewhere(a netip.Addr) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, there := f.local[a]; there {
		delete(f.local, a)
		f.send(link.Event{Kind: link.NodeAddressesChanged, Addr: a})
	}
}

// SetGateways makes the addresses the next hops of the default routes, those of
// one family a multipath route, and tells the watch.
func (f *Fake) SetGateways(hops ...netip.Addr) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hops = slices.Compact(slices.SortedFunc(slices.Values(hops), netip.Addr.Compare))
	f.send(link.Event{Kind: link.DefaultRoutesChanged})
}

// AddByHand binds an address to our link as another program would; the watch is not notified, since
// it reports only losses.
func (f *Fake) AddByHand(a netip.Addr) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.kind == "dummy" {
		f.bind(a)
	}
}
