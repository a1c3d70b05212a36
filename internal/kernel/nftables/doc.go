// Package nftables lists and removes whole tables of nf_tables, such as those
// that kube-proxy's nftables mode leaves behind. It reports, cheaply, when a program
// changed a table, and which program. It reads the rules of base chains that packets of IP
// meet, in the expressions of the kernel.
//
// It does not know whose tables are: a caller names those that are to go.
//
//	List       ──► dump of all tables ──► map[Key]
//	Filters    ──► dumps of chains, their rules and sets, of one generation ──► []Filter
//	Delete     ──► begin, one deletion a table, end: one message to the kernel
//	Generation ──► the number of the last transaction of any program
//	Watch      ◄── the kernel's notification at the end of each transaction, with the program
//
// A watch costs nothing while no program writes. The kernel sends each row of a transaction to all
// subscribers, and afterwards the new generation in a datagram of its own (nf_tables_commit). Only
// that passes the filter on the socket, so a transaction of any size is one short message, and the
// buffer has room for a few. If there are more, the watch reports a change as well. The cost that
// remains is the kernel's: while there is a subscriber, it keeps a page for each row of a transaction
// until the transaction is done.
//
// Deletion is all or nothing. The deletions of one call are one transaction of the kernel, so that no
// packet meets some of the tables and not the others. If one table cannot be deleted none is, and the
// error names the table. A table that is missing is deleted. A list is complete or an error; a Filter
// that is large is incomplete, and marked so. Every call has a deadline, also one that is stuck inside
// the kernel (package nfnetlink); a watch alone waits as long as its context lasts.
//
// Callers do not look at an errno: test errors with errors.Is against the sentinels below, the context
// errors and fs.ErrPermission. A kernel without nf_tables is no error: it has no tables.
package nftables
