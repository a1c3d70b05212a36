// Package healthcheck serves the health-check node ports of Services
// (spec.healthCheckNodePort), where load balancers ask whether this node has endpoints of a
// Service. Answers are those of kube-proxy.
//
// It knows counts, ports and addresses; which Services have such a port and what
// counts as an endpoint is decided by plan.
//
//	loop ──Set, Listen──▶ desiredPorts ──dirty ports──▶ Run ──▶ sockets ──▶ answers
//	                                                     ▲  │
//	                                             retry ──┘  └──▶ Status
//
// The laws it keeps: the loop never waits here, it only stores the desired ports. Run's goroutine
// alone opens and closes sockets. A change of a count changes an answer and no socket. A port that
// cannot be opened does not affect other ports, and is tried again. Nothing is left open when Run
// returns.
package healthcheck
