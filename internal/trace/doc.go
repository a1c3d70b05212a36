// Package trace finds the path of each connection to one address and port from packets that were
// seen on links. The path has the arrival, the chosen endpoint, the way out, the answer and its way
// back, or the station where it ended.
//
// It is pure: packets come in the order in which they were seen, stations go out.
//
//	client ──► VIP       seen as it comes in, before it is translated     arrived
//	peer   ──► backend   seen as it leaves, after that                    chosen, left
//	backend ──► peer     seen as it comes in                              answered
//	VIP    ──► client    seen as it leaves                                returned
//
// The two halves of a connection have nothing in common where its source was rewritten, too. The
// caller, which reads connection tracking, tells which halves belong together (Unknown, Resolve).
// Without it, the same client address or the first sequence number of TCP, which is never
// rewritten, connects them. Packets of other connections to the same endpoints are left out.
//
// It keeps its report of each connection, and of no more than MostConnections.
package trace
