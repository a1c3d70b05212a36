package destinations

import (
	"cmp"
	"slices"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
)

// A deleted destination stays on a list of its namespace for 120 to 240 s, longer while it has
// connections. (ip_vs_dest_trash_expire, net/netfilter/ipvs/ip_vs_ctl.c: a round runs every 60 s,
// the first notes the time, and one 120 s later frees the entry.) Each new destination searches
// that list under a lock, at 18 to 90 ns an entry. Nothing tells how long it is, so what is deleted here is counted.
//
// When it is long, what has drained waits, and only that: a destination that is wanted with
// weight 0 and has no connection, of a kind that gets none (drainable). No packet goes there,
// so it is all the same to clients when it leaves, and if its endpoint comes back nothing has
// to be added. Everything else is deleted at once: a destination of UDP, one that cannot
// drain, one with connections whose time is over, a server and what it has.

const (
	// trashLife is how long a deleted destination may stay on the list.
	trashLife = 240 * time.Second
	// trashSlot is the resolution of the count, and the time between two bursts of
	// deletions while the list is long. They go in bursts because after each the kernel
	// walks its whole connection table (expire_nodest_conn).
	trashSlot = 10 * time.Second
	// longTrash is a list so long that what has drained waits: twenty new endpoints cost
	// up to 4 ms more.
	longTrash = 2048
	// trashBurst go in each slot all the same, so that a few never wait.
	trashBurst = 64
	// trashWait is how long a drained destination waits at most. By then the entries it
	// waited for are gone and others have come: it is not one rollout but the rate of
	// changes, which waiting does not lower.
	trashWait = trashLife
)

// trash counts the destinations deleted in the last trashLife, by slot, oldest first. Those
// that came back are still counted, those that another process deleted are not.
type trash dataplane.Trash

// add counts n deletions.
func (t *trash) add(n int, now time.Time) {
	if n == 0 {
		return
	}
	*t = slices.DeleteFunc(*t, func(d dataplane.Deleted) bool { return !now.Before(d.Until) })
	if last := len(*t) - 1; last >= 0 && now.Add(trashLife-trashSlot).Before((*t)[last].Until) {
		(*t)[last].Count += n
		return
	}
	*t = append(*t, dataplane.Deleted{Until: now.Add(trashLife), Count: n})
}

// room returns how many drained destinations may be deleted now.
func (t trash) room(now time.Time) int {
	burst := trashBurst
	if last := len(t) - 1; last >= 0 && now.Add(trashLife-trashSlot).Before(t[last].Until) {
		burst -= t[last].Count
	}
	return max(longTrash-dataplane.Trash(t).Len(now), burst, 0)
}

// selectForDelete chooses among the destinations that have drained those that are deleted now: all
// for which there is room, and all that have waited long enough.
func (m *Manager) selectForDelete(idle []vserver.DestinationKey, now time.Time) []vserver.DestinationKey {
	room := m.trash.room(now)
	if len(idle) <= room {
		return idle
	}
	since := func(k vserver.DestinationKey) time.Time { one, _ := m.drains.get(k); return one.idle }
	slices.SortFunc(idle, func(a, b vserver.DestinationKey) int {
		return cmp.Or(since(a).Compare(since(b)), a.Compare(b))
	})
	for room < len(idle) && now.Sub(since(idle[room])) >= trashWait {
		room++
	}
	return idle[:room]
}
