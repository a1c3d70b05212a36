// Package vserver reads and writes the kernel's IPVS tables: virtual servers
// and their destinations.
//
// It knows rows, not Services: a caller hands it comparable keys and values and
// gets them back. It does not know who owns a row, what a row is for, or when
// one should be written; it loads no kernel module.
//
//	[]ServerChange ─────► chunk of messages ──► sendmsg ──► kernel
//	[]DestinationChange                                       │
//	[]error, one a row ◄── settle ◄── errno by sequence ◄─────┘
//	map[key]value ◄── decode ◄── dump, whole or not at all ◄──┤
//	map[key]Connections ◄── lines of /proc/net/ip_vs ◄────────┤
//	key, Digest, in pieces ◄── the same, without a map ◄──────┤
//	map[key]Load, Traffic ◄── the list, a dump ◄──────────────┘
//
// Writes go many messages to a system call. The kernel handles one buffer in order, continues after
// a refused message and always answers refusals. So only the last message of a chunk asks for an
// acknowledgement: when that arrives, every row without an error of its own has been applied.
//
// The law of the package: a result is true. A write converges: an add of an existing row becomes an
// update, an update of a missing row becomes an add, and a delete of a missing row succeeds. A read
// is complete or an error, and a row whose answer was lost fails with ErrUnknown. Only a survey is
// less: one cheap read of everything, which tells what to read. Every kernel call has a deadline,
// also one that is stuck inside the kernel; after a time-out the socket is given up and the next
// call opens a new one. While the kernel holds four of the calls left behind so, further ones fail
// with ErrBusy at once.
//
// No caller needs an errno: test errors with errors.Is against the sentinels below, the context
// errors and fs.ErrPermission.
package vserver
