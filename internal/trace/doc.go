// Package trace makes of packets that were seen on links the way of each connection to
// one address and port: where it arrived, which endpoint was chosen, how it left, who
// answered, and how the answer went back, or where all that ended.
//
// It is pure: packets come in the order in which they were seen, stations go out.
//
//	client ──► VIP       seen as it comes in, before it is translated     arrived
//	peer   ──► backend   seen as it leaves, after that                    chosen, left
//	backend ──► peer     seen as it comes in                              answered
//	VIP    ──► client    seen as it leaves                                returned
//
// The two halves of a connection have nothing in common where its source was rewritten,
// too. What belongs together is told by who reads connection tracking (Unknown, Resolve);
// else a client that is the same, or the first sequence number of TCP, which nobody
// rewrites, has to do. Packets of other connections to the same endpoints are left out.
//
// It keeps of each connection what it says of it, and of no more than MostConnections.
package trace
