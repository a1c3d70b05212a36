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
// Two rules hold throughout. A row is only deleted because it is no longer desired, or because it
// was found and never was desired (an orphan); the caller decides separately about orphans. After a
// failed write the state of a row is unknown: the row stays pending and is written again as an
// addition, or deleted again if it is not desired. So every Store must converge: adding an existing
// row updates it, and deleting a missing row succeeds. A failed row is only written again by a pass
// that retries, so that the cost of a change does not depend on rows that keep failing.
//
// Of a row on which both sides agree one key and one value are kept. A table of many rows
// has its keys packed (KeyCodec), and what is pending gives its room back (shrinkingMap), so
// that a first start that writes everything leaves nothing behind.
//
// Nothing here knows what a row means, and nothing is safe for concurrent use:
// the loop goroutine owns it all.
package delta
