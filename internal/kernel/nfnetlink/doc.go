// Package nfnetlink is the transport that the packages for nf_tables share. It has sockets of the
// netfilter netlink family in the network namespace of a handle, messages with attributes, and calls
// with a deadline.
//
//	Caller ── Do ──► Session: a socket and its sequence number ──► kernel
//	                 Message, Attrs ◄── datagrams of the kernel
//
// The kernel works through a request while the sender is inside its system call and accepts no
// time-out there. So Do runs each use of a socket on a goroutine of its own and returns at the
// deadline. The socket of a call without an answer is closed as soon as the kernel returns from it,
// and the next call opens another one. An answer that comes late therefore never reaches a later
// call. At most heldLimit calls are inside the kernel at a time.
//
// The codec builds on every operating system and is what the fuzz targets of its users test:
// malformed bytes are an error, never a panic.
package nfnetlink
