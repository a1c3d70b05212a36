package delta

import "iter"

// View is the read-only side of a table, for example for conditions under which rows of another
// table wait. A *Tracker and a *Table are Views.
type View[K comparable, V any] interface {
	// Desired returns the wanted value of a row.
	Desired(k K) (V, bool)
	// Believed returns the known actual value of a row; false if the row is absent or of unknown
	// state.
	Believed(k K) (V, bool)
	// Known reports whether a row is desired, in place or of unknown state.
	Known(k K) bool
	// MayBeThere reports whether a row is in place, or may be because a write of it failed.
	MayBeThere(k K) bool
	// PendingDelete reports whether a row in place is not desired.
	PendingDelete(k K) bool
	// Deleting reports whether a row is to be deleted, orphans included or not.
	Deleting(k K, orphans bool) bool
	// AllDesired, AllUpdates, AllDeletes and Actual iterate over rows in no order. They return the
	// desired rows, the desired rows that are not in place, the rows in place that are not desired,
	// and the rows in place.
	AllDesired() iter.Seq2[K, V]
	AllUpdates() iter.Seq[K]
	AllDeletes() iter.Seq[K]
	Actual() iter.Seq2[K, V]
	// Counts returns the sizes of these parts.
	Counts() Counts
}
