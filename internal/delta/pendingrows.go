package delta

// PendingRow is a row that is not as it is desired.
type PendingRow[K comparable, V any] struct {
	Change[K, V]
	// Resting: writing it failed, so it waits for a pass that retries.
	Resting bool
	// Orphan: the row was found and never desired.
	Orphan bool
}

// PendingRows lists some of the rows that are not as desired, for those who only read: no
// more than most, in no order, and how many more there are. Its cost is that of what it lists.
func (t *Tracker[K, V]) PendingRows(most int) (rows []PendingRow[K, V], more int) {
	c := t.Counts()
	rows = make([]PendingRow[K, V], 0, min(most, c.Pending()))
	add := func(r PendingRow[K, V]) bool {
		if len(rows) < most {
			rows = append(rows, r)
		}
		return len(rows) < most
	}
	leaves := func(orphan bool) func(K, leftover[V]) bool {
		return func(k K, l leftover[V]) bool {
			return add(PendingRow[K, V]{Change[K, V]{Delete, k, l.have}, l.resting, orphan})
		}
	}
	_ = t.updates.each(func(k K, u update[V]) bool {
		op := Add
		if u.actual == present {
			op = Update
		}
		return add(PendingRow[K, V]{Change[K, V]{op, k, u.want}, u.resting, false})
	}) && t.deletes.each(leaves(false)) && t.orphans.each(leaves(true))
	return rows, c.Pending() - len(rows)
}
