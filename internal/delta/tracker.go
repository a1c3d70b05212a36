package delta

import (
	"iter"
	"slices"

	"github.com/kube-ipvs/kube-ipvs/internal/netkey"
)

// Op is an operation on a row.
type Op = netkey.Op

// The operations.
const (
	Add    = netkey.Add
	Update = netkey.Update
	Delete = netkey.Delete
)

// Change is one row to write. Value is the desired value, or for Delete the
// last known one.
type Change[K comparable, V any] struct {
	Op    Op
	Key   K
	Value V
}

// Tracker holds desired and actual rows of one table. Rows on which both agree
// are stored once. The zero Tracker is not usable; see NewTracker.
type Tracker[K comparable, V any] struct {
	equal func(a, b V) bool

	// The four maps are disjoint: a key is in at most one of them.
	synced  keyMap[K, V]                 // desired and actual, equal
	updates shrinkingMap[K, update[V]]   // desired; actual differs, is missing or unknown
	deletes shrinkingMap[K, leftover[V]] // actual, not desired any more
	orphans shrinkingMap[K, leftover[V]] // actual, found and not desired since
}

// update is a desired row that is not in place.
type update[V any] struct {
	want   V
	have   V
	actual presence
	// resting: writing it failed, so it waits for a pass that retries.
	resting bool
}

// presence is what is known of a row in the kernel.
type presence uint8

const (
	absent  presence = iota
	present          // have is the value
	unknown          // a write of it failed: anything may be there
)

// leftover is an actual row that is not desired.
type leftover[V any] struct {
	have V
	// unsure: a write of it failed, so it may be gone or differ from have.
	unsure bool
	// resting: deleting it failed, so it waits for a pass that retries.
	resting bool
}

// NewTracker returns an empty Tracker that compares values with equal.
func NewTracker[K comparable, V any](equal func(a, b V) bool) *Tracker[K, V] {
	return NewPackedTracker(equal, KeyCodec[K]{})
}

// NewPackedTracker returns an empty Tracker that keeps its keys packed.
func NewPackedTracker[K comparable, V any](equal func(a, b V) bool, p KeyCodec[K]) *Tracker[K, V] {
	return &Tracker[K, V]{
		equal:   equal,
		synced:  newKeyMap[K, V](p),
		updates: shrinkingMap[K, update[V]]{keyMap: newKeyMap[K, update[V]](p)},
		deletes: shrinkingMap[K, leftover[V]]{keyMap: newKeyMap[K, leftover[V]](p)},
		orphans: shrinkingMap[K, leftover[V]]{keyMap: newKeyMap[K, leftover[V]](p)},
	}
}

// SetDesired wants the row to be there with value v.
func (t *Tracker[K, V]) SetDesired(k K, v V) {
	if have, ok := t.synced.get(k); ok {
		if !t.equal(have, v) {
			t.synced.remove(k)
			t.updates.set(k, update[V]{want: v, have: have, actual: present})
		}
		return
	}
	if u, ok := t.updates.get(k); ok {
		u.resting = u.resting && t.equal(u.want, v)
		u.want = v
		t.settle(k, u)
		return
	}
	u := update[V]{want: v}
	if l, ok := t.leftover(k); ok {
		u.have, u.actual = l.have, present
		if l.unsure {
			u.actual = unknown
		}
		t.dropLeftover(k)
	}
	t.settle(k, u)
}

// leftover returns a row in place that is not desired.
func (t *Tracker[K, V]) leftover(k K) (leftover[V], bool) {
	if l, ok := t.deletes.get(k); ok {
		return l, true
	}
	l, ok := t.orphans.get(k)
	return l, ok
}

// settle files a desired row under synced or updates.
func (t *Tracker[K, V]) settle(k K, u update[V]) {
	if u.actual == present && t.equal(u.want, u.have) {
		t.updates.remove(k)
		t.synced.set(k, u.have)
		return
	}
	t.updates.set(k, u)
}

func (t *Tracker[K, V]) dropLeftover(k K) {
	t.deletes.remove(k)
	t.orphans.remove(k)
}

// DeleteDesired wants the row to be gone.
func (t *Tracker[K, V]) DeleteDesired(k K) {
	if have, ok := t.synced.get(k); ok {
		t.synced.remove(k)
		t.deletes.set(k, leftover[V]{have: have})
		return
	}
	u, ok := t.updates.get(k)
	if !ok {
		return
	}
	t.updates.remove(k)
	switch u.actual {
	case present:
		t.deletes.set(k, leftover[V]{have: u.have})
	case unknown:
		t.deletes.set(k, leftover[V]{have: u.want, unsure: true})
	}
}

// SetActual records that the row was seen with value v. A row that is not
// desired becomes an orphan, unless its deletion is pending already.
func (t *Tracker[K, V]) SetActual(k K, v V) {
	if want, ok := t.Desired(k); ok {
		t.synced.remove(k)
		t.settle(k, update[V]{want: want, have: v, actual: present})
		return
	}
	if l, ok := t.deletes.get(k); ok {
		l.have, l.unsure = v, false
		t.deletes.set(k, l)
		return
	}
	l, _ := t.orphans.get(k)
	l.have, l.unsure = v, false
	t.orphans.set(k, l)
}

// DropActual records that the row was seen to be missing.
func (t *Tracker[K, V]) DropActual(k K) {
	if want, ok := t.Desired(k); ok {
		t.synced.remove(k)
		t.updates.set(k, update[V]{want: want})
		return
	}
	t.dropLeftover(k)
}

// Load replaces all known actual rows by those that were just read, and returns how many rows
// differed.
func (t *Tracker[K, V]) Load(actual map[K]V) (drifted int) {
	var gone []K
	for k := range t.Actual() {
		if _, ok := actual[k]; !ok {
			gone = append(gone, k)
		}
	}
	for _, k := range gone {
		t.DropActual(k)
	}
	t.updates.each(func(k K, u update[V]) bool {
		if _, ok := actual[k]; !ok && u.actual == unknown {
			t.DropActual(k) // stays in updates, as absent
		}
		return true
	})
	for k, v := range actual {
		if have, ok := t.actual(k); !ok || !t.equal(have, v) {
			drifted++
			t.SetActual(k, v)
		}
	}
	return drifted + len(gone)
}

// actual returns the known value of a row; false if the row is absent or its state unknown.
func (t *Tracker[K, V]) actual(k K) (V, bool) {
	if v, ok := t.synced.get(k); ok {
		return v, true
	}
	if u, ok := t.updates.get(k); ok {
		return u.have, u.actual == present
	}
	l, ok := t.leftover(k)
	return l.have, ok && !l.unsure
}

// Applied records that a change was carried out.
func (t *Tracker[K, V]) Applied(c Change[K, V]) {
	if c.Op == Delete {
		t.DropActual(c.Key)
		return
	}
	t.SetActual(c.Key, c.Value)
}

// Failed records that a change may or may not have been carried out. The row
// rests until a pass retries, or until something else is wanted of it.
func (t *Tracker[K, V]) Failed(c Change[K, V]) {
	if u, ok := t.updates.get(c.Key); ok {
		u.actual, u.resting = unknown, true
		t.updates.set(c.Key, u)
	}
	for _, m := range []*shrinkingMap[K, leftover[V]]{&t.deletes, &t.orphans} {
		if l, ok := m.get(c.Key); ok {
			l.unsure, l.resting = true, true
			m.set(c.Key, l)
		}
	}
}

// Desired returns the wanted value of a row.
func (t *Tracker[K, V]) Desired(k K) (V, bool) {
	if v, ok := t.synced.get(k); ok {
		return v, true
	}
	u, ok := t.updates.get(k)
	return u.want, ok
}

// PendingDelete reports whether the row conflicts with a desired one.
func (t *Tracker[K, V]) PendingDelete(k K) bool {
	_, ok := t.leftover(k)
	return ok
}

// Deleting reports whether the row is to be deleted, orphans included or not.
func (t *Tracker[K, V]) Deleting(k K, orphans bool) bool {
	if _, ok := t.deletes.get(k); ok {
		return true
	}
	_, ok := t.orphans.get(k)
	return ok && orphans
}

// Known reports whether the row is desired, in place or of unknown state.
func (t *Tracker[K, V]) Known(k K) bool {
	_, desired := t.Desired(k)
	return desired || t.PendingDelete(k)
}

// Believed returns the known actual value of a row; false if the row is absent or of unknown state.
func (t *Tracker[K, V]) Believed(k K) (V, bool) { return t.actual(k) }

// MayBeThere reports whether the row is in place, or may be because a write of it failed.
func (t *Tracker[K, V]) MayBeThere(k K) bool {
	if u, ok := t.updates.get(k); ok {
		return u.actual != absent
	}
	return t.Known(k)
}

// AllDeletes goes over the rows in place that are not desired, orphans included,
// in no order.
func (t *Tracker[K, V]) AllDeletes() iter.Seq[K] {
	return func(yield func(K) bool) {
		key := func(k K, _ leftover[V]) bool { return yield(k) }
		_ = t.deletes.each(key) && t.orphans.each(key)
	}
}

// AllUpdates goes over the desired rows that are not in place, in no order.
func (t *Tracker[K, V]) AllUpdates() iter.Seq[K] {
	return func(yield func(K) bool) {
		t.updates.each(func(k K, _ update[V]) bool { return yield(k) })
	}
}

// AllDesired goes over the desired rows in no order.
func (t *Tracker[K, V]) AllDesired() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		_ = t.synced.each(yield) && t.updates.each(func(k K, u update[V]) bool { return yield(k, u.want) })
	}
}

// Actual iterates over the rows known to be in place, in no order. A desired row whose state is
// unknown is left out.
func (t *Tracker[K, V]) Actual() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		had := func(k K, l leftover[V]) bool { return yield(k, l.have) }
		_ = t.synced.each(yield) &&
			t.updates.each(func(k K, u update[V]) bool { return u.actual != present || yield(k, u.have) }) &&
			t.deletes.each(had) && t.orphans.each(had)
	}
}

// Counts are the sizes of a Tracker's parts.
type Counts struct {
	// Desired rows, of which Updates are not in place.
	Desired, Updates int
	// Deletes are the rows in place that are not desired, of which Orphans were
	// found rather than given up.
	Deletes, Orphans int
}

// Pending is the number of rows to write.
func (c Counts) Pending() int { return c.Updates + c.Deletes }

// Counts returns the current sizes.
func (t *Tracker[K, V]) Counts() Counts {
	return Counts{
		Desired: t.synced.len() + t.updates.len(),
		Updates: t.updates.len(),
		Deletes: t.deletes.len() + t.orphans.len(),
		Orphans: t.orphans.len(),
	}
}

// Pass selects some of the pending rows.
type Pass struct {
	// Orphans are deleted too.
	Orphans bool
	// Retry includes the rows that failed before and rest.
	Retry bool
}

// Updates lists the rows to add or update in a pass, sorted with cmp. Its cost
// is that of what is pending.
func (t *Tracker[K, V]) Updates(cmp func(a, b K) int, p Pass) []Change[K, V] {
	out := make([]Change[K, V], 0, t.updates.len())
	t.updates.each(func(k K, u update[V]) bool {
		if u.resting && !p.Retry {
			return true
		}
		op := Add
		if u.actual == present {
			op = Update
		}
		out = append(out, Change[K, V]{Op: op, Key: k, Value: u.want})
		return true
	})
	slices.SortFunc(out, func(a, b Change[K, V]) int { return cmp(a.Key, b.Key) })
	return out
}

// Deletes lists the rows to delete in a pass, in the reverse order of cmp.
func (t *Tracker[K, V]) Deletes(cmp func(a, b K) int, p Pass) []Change[K, V] {
	out := make([]Change[K, V], 0, t.deletes.len())
	collect := func(k K, l leftover[V]) bool {
		if !l.resting || p.Retry {
			out = append(out, Change[K, V]{Op: Delete, Key: k, Value: l.have})
		}
		return true
	}
	t.deletes.each(collect)
	if p.Orphans {
		t.orphans.each(collect)
	}
	slices.SortFunc(out, func(a, b Change[K, V]) int { return cmp(b.Key, a.Key) })
	return out
}
