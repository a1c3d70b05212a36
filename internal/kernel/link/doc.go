// Package link keeps the dummy link with the virtual addresses of this node, and reports changes to
// it by other programs.
//
// It knows nothing of Services. Callers pass addresses, or ranges that become local by a route (see
// RouteProtocol), or addresses that become local only for marked packets (DetachedTable). They also
// pass addresses to announce (Announcement). They get one error for each row. It never sets the link up: an address on a link that is down is still
// local, but a link that is up would answer neighbours. It never decides which address may be
// bound.
//
// Flow in: Ensure, Write, WriteRoutes, WriteDetached, WriteAnnounced and Remove turn rows into rtnetlink messages.
// Flow out: List and Local read addresses, ListRoutes, ListDetached and ListAnnounced our routes, Gateways the way out;
// Watch reports losses and changes of the node's own addresses.
//
//	Write ──▶ slices of messages ──▶ one socket, one deadline a slice ──▶ kernel
//	Watch ◀── losses by others ◀── ownEvents ◀── second socket    ◀──┘
//
// The law it keeps: a read error never means "absent", and an interrupted dump is not used. No call
// outlives its deadline, even if the kernel blocks the calling thread on its routing lock.
package link
