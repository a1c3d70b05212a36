// Package conntrack deletes flows from the kernel's connection tracking table:
// those that still lead to a server which is gone.
//
// It knows keys that clients dial and the addresses that may answer them, not Services. For each
// key a caller names the addresses whose flows may continue, and every other flow to the key is
// deleted. An answer that arrives after its flow was deleted begins a flow of its own, which is
// never answered and keeps the client out. Flows of this kind from the addresses in Order.Fresh are
// deleted, too. Of a protocol with connections it may ask for flows that carry none
// (Order.Connections). Nothing else in the table is touched, and nothing is ever added.
//
//	[]Order ──► dump request ──────► first socket ──► kernel
//	                                                    │ flows, 32 KiB at a time
//	stale? ◄── both directions, ever answered? ◄────────┘
//	  │
//	  └──► up to 1,024 deletions ──► second socket ──► kernel
//
// For keys with a few ports the kernel is asked for the flows to each port (Linux 5.8; an older one
// gives all, which is noticed). Keys with many ports share one dump of all flows of their protocol,
// which is searched while it streams. Memory holds one datagram and one batch of deletions, for any
// size of the table. A long dump takes pauses.
//
// The law of the package: a flow is deleted by its original tuple, its zone and its
// number, so never another one that took the tuple meanwhile. A flow that is gone
// already is a success. A dump that changed under the reader is done again, and a
// call that the kernel does not answer in time gives its socket up.
//
// Besides, Origin and Answers look one flow up by either direction, for people who follow
// packets.
//
// A Handle does this at once; a Sweeper collects orders from any goroutine, does
// it off their path and tries again what failed.
package conntrack
