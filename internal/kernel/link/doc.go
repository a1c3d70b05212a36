// Package link keeps the dummy link that carries the virtual addresses of this
// node, and tells what somebody else did to it.
//
// It knows nothing of Services: callers hand in addresses, or ranges that become local
// by a route (see RouteProtocol), or addresses that are to be local to marked packets alone
// (DetachedTable), and get back one error per row. It never sets the link up (an address on a link that is down is
// still local, and a link that is up would answer neighbours), and it never
// decides which address may be bound.
//
// Flow in: Ensure, Write, WriteRoutes, WriteDetached and Remove turn rows into rtnetlink messages.
// Flow out: List and Local read addresses, ListRoutes and ListDetached our routes, Gateways the way out;
// Watch reports losses and changes of the node's own addresses.
//
//	Write ──▶ slices of messages ──▶ one socket, one deadline a slice ──▶ kernel
//	Watch ◀── losses nobody asked for ◀── echoes ◀── second socket    ◀──┘
//
// The law it keeps: a read error is never "absent", an interrupted dump is never
// believed, and no call outlives its deadline, even while the kernel holds the
// calling thread on its routing lock.
package link
