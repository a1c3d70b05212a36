package destinations

import (
	"container/heap"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
)

// deadlineHeap has the deadlines of drains, soonest first, so that a pass finds expired drains without
// a walk over all of them. An entry that is out of date stays until its time has come, or until
// most entries are out of date: drains end sooner than they must, and begin again.
type deadlineHeap []deadline

// deadline is when one drain ends, if the drain still has it (drain.due).
type deadline struct {
	at  time.Time
	key vserver.DestinationKey
}

// Len, Less, Swap, Push and Pop implement heap.Interface.
func (e deadlineHeap) Len() int           { return len(e) }
func (e deadlineHeap) Less(i, j int) bool { return e[i].at.Before(e[j].at) }
func (e deadlineHeap) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *deadlineHeap) Push(x any)        { *e = append(*e, x.(deadline)) }
func (e *deadlineHeap) Pop() any {
	last := (*e)[len(*e)-1]
	(*e)[len(*e)-1] = deadline{}
	*e = (*e)[:len(*e)-1]
	return last
}

// next returns the soonest; the zero time without any.
func (e deadlineHeap) next() time.Time {
	if len(e) == 0 {
		return time.Time{}
	}
	return e[0].at
}

// over reports whether a deadline has passed.
func (d *drains) over(now time.Time) bool {
	return len(d.deadlines) > 0 && !now.Before(d.deadlines.next())
}

// fewDeadlines is a size below which entries that are out of date are kept.
const fewDeadlines = 64

// end returns when a drain ends if nothing happens before; false for never.
func (d drain) end() (time.Time, bool) {
	at, limited := d.deadline()
	if limited && !d.idle.IsZero() { // while it waits in the trash no connection is cut
		at = later(at, d.idle.Add(trashWait))
	}
	return at, limited
}

// deadline returns when a drain ends at the latest; false for never.
func (d drain) deadline() (time.Time, bool) {
	return d.stopped.Add(d.limit), !d.stopped.IsZero()
}

// schedule returns a drain that ends when it has to, if it has an end in time.
func (d *drains) schedule(k vserver.DestinationKey, one drain) drain {
	at, limited := one.end()
	if !limited || !one.due.IsZero() && !at.Before(one.due) {
		return one // or later than due, when overdue schedules it again
	}
	one.due = at
	heap.Push(&d.deadlines, deadline{at, k})
	return one
}

// sweepDeadlines drops entries that are out of date, where they are most of all.
func (d *drains) sweepDeadlines() {
	if len(d.deadlines) < fewDeadlines+2*d.count {
		return
	}
	kept := d.deadlines[:0]
	for _, e := range d.deadlines {
		if one, still := d.get(e.key); still && one.due.Equal(e.at) {
			kept = append(kept, e)
		}
	}
	clear(d.deadlines[len(kept):])
	d.deadlines = kept
	heap.Init(&d.deadlines)
}

// overdue adds what had its time, as far as it ends in this pass, in which most may end, and
// returns how many connections are cut.
func (d *drains) overdue(now time.Time, ended map[vserver.DestinationKey]dataplane.DrainEnd, most int) (cut int) {
	for d.over(now) && len(ended) < most {
		e := heap.Pop(&d.deadlines).(deadline)
		one, still := d.get(e.key)
		if _, ends := ended[e.key]; !still || ends || !one.due.Equal(e.at) {
			continue
		}
		one.due = time.Time{}
		if at, limited := one.end(); !limited || now.Before(at) {
			d.of[e.key.Server][e.key] = d.schedule(e.key, one)
			continue
		}
		if one.noActive {
			ended[e.key] = dataplane.DrainEmpty
		} else {
			ended[e.key] = dataplane.DrainDeadline
			cut++
		}
	}
	return cut
}
