// Package delta keeps what is desired and what is actual of a keyed set of
// rows side by side, and knows at any time what is pending between the two.
//
//	       desired             actual
//	 .----------------.  .----------------.
//	|   updates        ||     deletes      |
//	|   (missing or    ||     (not wanted) |
//	|    different)  .-||-.                |
//	|               | synced |             |
//	 `----------------'  `----------------'
//
// A Tracker is that picture for one table and does no I/O. Claims settle who
// holds a key that several owners want. A Table joins a Tracker to the Store
// that reads and writes the rows for real.
//
// Two rules hold throughout. A row is only ever deleted because it is not
// desired any more, or because it was found and never was desired (an orphan);
// the caller decides separately about orphans. And what a failed write left
// behind is unknown: the row stays pending, is written again as an addition, and
// is deleted again when it is not wanted, so every Store has to converge: adding
// what exists updates it, deleting what is missing succeeds. Until then it rests:
// only a pass that retries writes it, so that a change costs what it touches and
// not what keeps failing.
//
// Of a row on which both sides agree one key and one value are kept. A table of many rows
// has its keys packed (Packing), and what is pending gives its room back (pendingMap), so
// that a first start that writes everything leaves nothing behind.
//
// Nothing here knows what a row means, and nothing is safe for concurrent use:
// the loop goroutine owns it all.
package delta
