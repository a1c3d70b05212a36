package link

import (
	"net/netip"
	"sync"
)

// ownEvents lists what this handle is about to remove, so that the watch can
// tell it from what others removed. The kernel multicasts a removal before it
// answers the request, hence expect before the send and cancel after a failure.
// It does not say who asked for the removal of an IPv6 address, so the number of
// the requesting socket is no help.
//
// In doubt a loss is reported: the worst effect is one superfluous read.
type ownEvents struct {
	mu      sync.Mutex
	active  bool // a watcher exists; without a reader nothing is kept
	deletes map[netip.Addr]int
	routes  map[netip.Prefix]int
	// announced has the deletions of announcements.
	announced map[Announcement]int
	removed   map[uint32]bool // links, by index; indexes are not used twice
}

// reset drops everything, at the start of a watch and after lost events.
func (e *ownEvents) reset(active bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.active = active
	e.deletes, e.routes, e.removed = map[netip.Addr]int{}, map[netip.Prefix]int{}, map[uint32]bool{}
	e.announced = map[Announcement]int{}
}

func (e *ownEvents) expect(c Change) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.active && c.Op == Delete {
		e.deletes[c.Addr]++
	}
}

func (e *ownEvents) cancel(c Change) {
	if c.Op == Delete {
		e.consume(c.Addr)
	}
}

// consume reports whether the removal of an address is ours, and drops it.
func (e *ownEvents) consume(a netip.Addr) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return consume(e.deletes, a)
}

// expectRoute, cancelRoute and consumeRoute do for routes what their namesakes do for
// addresses.
func (e *ownEvents) expectRoute(c RouteChange) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.active && c.Op == Delete {
		e.routes[c.Prefix]++
	}
}

func (e *ownEvents) cancelRoute(c RouteChange) {
	if c.Op == Delete {
		e.consumeRoute(c.Prefix)
	}
}

func (e *ownEvents) consumeRoute(p netip.Prefix) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return consume(e.routes, p)
}

// expectAnnouncement, cancelAnnouncement and consumeAnnouncement do it for announcements.
func (e *ownEvents) expectAnnouncement(c AnnounceChange) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.active && c.Op == Delete {
		e.announced[c.Announcement]++
	}
}

func (e *ownEvents) cancelAnnouncement(c AnnounceChange) {
	if c.Op == Delete {
		e.consumeAnnouncement(c.Announcement)
	}
}

func (e *ownEvents) consumeAnnouncement(a Announcement) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return consume(e.announced, a)
}

// consume takes one off a count.
func consume[K comparable](counts map[K]int, k K) bool {
	switch counts[k] {
	case 0:
		return false
	case 1:
		delete(counts, k)
	default:
		counts[k]--
	}
	return true
}

func (e *ownEvents) expectRemoval(index uint32) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.active {
		e.removed[index] = true
	}
}

func (e *ownEvents) cancelRemoval(index uint32) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.removed, index)
}

// removal reports whether we asked for the end of the link.
func (e *ownEvents) removal(index uint32) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.removed[index]
}
