// Package load is many clients at once: new connections at a fixed rate, and connections that stay open, against one address.
//
//	New a second ──> connect, "ask\n", one line back, close       counted by second, backend, and kind of failure
//	Long         ──> connect, then "ask\n" Every so often         each with its backend, and when and how it was cut
//
// It is an open loop: a connection starts at its time, regardless of earlier ones. So a stall hits
// as many clients as in reality. A connection that was cut is counted once and never opened again.
// Nothing is tried twice.
//
// A run is one thread that holds every socket in one epoll: where the machine is emulated, a goroutine and a timer for each
// connection would measure the client. So a rate of some thousand a second is the network's to carry, and Late tells when the
// client was the one that could not follow.
//
// The other side is the server of e2e/backend, and so is the law: sockets only, no third-party protocol library, and nothing
// known of IPVS, Kubernetes or namespaces.
package load
