package link

import "sync"

// ownEvents lists what this handle is about to remove, so that the watch can
// tell it from what others removed. The kernel multicasts a removal before it
// answers the request, hence expect before the send and cancel after a failure.
// It does not say who asked for the removal of an IPv6 address, so the number of
// the requesting socket is no help.
//
// In doubt a loss is reported: the worst effect is one superfluous read.
type ownEvents struct {
	mu     sync.Mutex
	active bool // a watcher exists; without a reader nothing is kept
	// deletes counts by what is deleted: a netip.Addr, the netip.Prefix of a local route, or an Announcement.
	deletes map[any]int
	removed map[uint32]bool // links, by index; indexes are not used twice
}

// reset drops everything, at the start of a watch and after lost events.
func (e *ownEvents) reset(active bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.active = active
	e.deletes, e.removed = map[any]int{}, map[uint32]bool{}
}

// deletedBy returns what a change deletes, nil for one that adds.
func deletedBy(op Op, row any) any {
	if op != Delete {
		return nil
	}
	return row
}

// expect is called before a deletion is sent, and for nil does nothing.
func (e *ownEvents) expect(deleted any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.active && deleted != nil {
		e.deletes[deleted]++
	}
}

// cancel takes an expectation back.
func (e *ownEvents) cancel(deleted any) { e.consume(deleted) }

// consume reports whether the deletion is ours, and drops it.
func (e *ownEvents) consume(deleted any) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch e.deletes[deleted] {
	case 0:
		return false
	case 1:
		delete(e.deletes, deleted)
	default:
		e.deletes[deleted]--
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
