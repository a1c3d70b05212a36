// Package chains owns the rules of ipvs mode: its chains, and the jumps to them from the chains of
// the kernel.
//
//	jumps.go       names of chains, the jumps, chains that are there only while an address needs them
//	basechains.go  all chains but those of detours: they refer to sets, and do not grow with Services
//	nat.go         masquerading, and the way to detours
//	filter.go      the clients that are let in, and the packets of this host that are dropped
//	dsr.go         marks and segment sizes for addresses from which backends answer themselves
//	capture.go     marks for captured ports
//	detours.go     a rule for each frontend whose clients on this node go elsewhere
//	drops.go       why a rule drops packets
//	manager.go     the two tables, read together
//
// Names and rules are those of kube-proxy's ipvs mode where it has them.
package chains
