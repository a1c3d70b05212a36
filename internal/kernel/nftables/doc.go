// Package nftables lists and removes whole tables of nf_tables, such as those
// that kube-proxy's nftables mode leaves behind, and tells whether and when
// anybody has changed any, cheaply. It reads the rules of base chains that packets of IP
// meet, in the expressions of the kernel.
//
// It does not know whose tables are: a caller says which are to go.
//
//	List       ──► dump of all tables ──► map[Key]
//	Filters    ──► dumps of chains, their rules and sets, of one generation ──► []Filter
//	Delete     ──► begin, one deletion a table, end: one message to the kernel
//	Generation ──► the number of the last transaction of anybody
//	Watch      ◄── the kernel's notification at the end of each transaction
//
// A watch costs nothing while nobody writes. The kernel describes each row of a
// transaction to whoever listens, and afterwards tells the new generation in a
// datagram of its own (nf_tables_commit); only that gets through the filter on
// the socket, so a transaction of any size is one short message, and a few of
// them are all the room there is. More than fit is one change, too. What remains is
// the kernel's: while anybody listens, it keeps a page for each row of a transaction
// until that is done.
//
// The law of the room: all or nothing. The deletions of one call are one
// transaction of the kernel, so that no packet meets some of the tables and not
// the others; where one table cannot go, none does, and the error says which it
// was. A table that is missing is deleted. A list is complete or an error; of a Filter
// that is large some is left out, and it says so. Every
// call has a deadline, also one that is stuck inside the kernel; a watch alone waits
// as long as its context lasts.
//
// Nobody above this room looks at an errno: test errors with errors.Is against
// the sentinels below, the context errors and fs.ErrPermission. A kernel without
// nf_tables is no error: it has no tables.
package nftables
