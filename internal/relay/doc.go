// Package relay serves NodePorts on the loopback addresses 127.0.0.1 and ::1, where the kernel
// serves none without route_localnet. It does what kube-proxy's nftables mode does for TCP
// (KEP-6032), and for UDP, too. It knows ports and targets; plan decides which Services have them.
//
//	loop ──Set──▶ claims ──dirty keys──▶ Run ──▶ sockets ──▶ connections, flows ──▶ targets
//	                                      ▲  │
//	                              retry ──┘  └──▶ State, Counts
//
// The laws it keeps: the loop never waits here. Run's goroutine alone opens and closes ports. A port
// that cannot be opened does not affect other ports, and is tried again. A connection ends by
// itself, or with its Service, or after a long silence; a flow of UDP ends with its target, too. The
// number of both is limited, for each port and in all. Nothing is left open when Run returns.
package relay
