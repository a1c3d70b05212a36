// Package conntrack deletes flows from the kernel's connection tracking table:
// those that still lead to a server which is gone.
//
// It knows keys that clients dial and who may answer them, not Services: a
// caller says for each key whose answers may go on, and every other flow to it
// goes; and of whom answers may have come late, which begin flows that nobody ever
// answers and that keep a client out (Order.Fresh): those go, too. Of a protocol with
// connections it may ask for flows that carry none (Order.Connections). Nothing else in
// the table is touched, and nothing is ever added.
//
//	[]Order ──► dump request ──────► first socket ──► kernel
//	                                                    │ flows, 32 KiB at a time
//	stale? ◄── both directions, ever answered? ◄────────┘
//	  │
//	  └──► up to 1,024 deletions ──► second socket ──► kernel
//
// For keys with a few ports the kernel is asked for the flows to each port (Linux
// 5.8; an older one gives all, which is noticed). Many share one dump of all flows
// of their protocol, which is looked through while it streams: what is in memory is
// one datagram and one batch of deletions, however large the table. A long dump
// takes pauses.
//
// The law of the room: a flow is deleted by its original tuple, its zone and its
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
