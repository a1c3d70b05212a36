// Package ipset speaks the kernel's ipset protocol over netlink: create, list,
// add, delete, swap and destroy, one by one or thousands in a message, without
// starting a process per entry.
//
// It covers the five set types a Service proxy needs, in both address families:
//
//	hash:ip            10.96.0.1
//	hash:ip,port       10.96.0.1,tcp:80
//	hash:ip,port,ip    10.244.0.5,tcp:8080,10.244.0.5
//	hash:ip,port,net   203.0.113.7,tcp:443,198.51.100.0/24
//	bitmap:port        30080
//
// Sets of any other type are seen by ListSets, and their members are refused
// with ErrUnsupported rather than half decoded.
//
// # Flow
//
// In go comparable values: a Set (the header) and an Entry (one member). Out
// come the same values, or an *Error that names the operation, the set and the
// entry and matches one of the sentinels with errors.Is. Callers never look at
// errno. The package knows nothing of Services, rules or who owns a set.
//
//	Change ─┐
//	Change ─┼─ Write ── one message of up to 512 elements ── kernel
//	Change ─┘     └──── a refused element: its neighbours are sent again,
//	                    each in a message of its own, in one system call
//
// WriteAll does so for several sets, and CreateAll makes several, with the
// messages of up to thirty-two in one system call.
//
// # Laws
//
// A list is complete or an error: long sets span several messages and are merged, an interrupted
// dump is repeated and finally reported as ErrInterrupted. Every row of a Write has its own result.
// A reply that comes after its deadline is never taken for the answer to a later request. Replies
// carry the sequence number of their request. A socket that timed out is closed and opened again in
// the same network namespace.
//
// # Text
//
// Set.SaveLine, Entry.String and WriteSave print the same text as `ipset save`, without two hash
// parameters that newer tools append (`bucketsize 12 initval 0x…`). NormalizeSave strips these from
// the tool's output for a comparison. `ipset restore` accepts the text as it is.
//
// The package ipsettest has a stateful fake with the same methods.
package ipset
