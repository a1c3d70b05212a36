// Package model holds the values that all packages share: the inputs (Service, Slice, Endpoint,
// Node) and the results (Frontend, Backend).
//
// Everything here is a plain value. A sender never changes a value after it handed the value over;
// a receiver may keep it. Keys are comparable. There is no I/O, no clock and no logger.
//
// The names, one per layer and nowhere a synonym:
//
//	service         what the user wrote: a v1 Service
//	slice           a discovery/v1 EndpointSlice
//	endpoint        one address in a slice
//	frontend        one address, port and protocol on which a service answers
//	backend         one address and port to which a frontend may send
//	NodePort        a frontend on an address of the node itself
//	detour          another frontend, to which clients of this node are taken
//	host            the machine the agent runs on: its links, its Node, its place
//	health check    what a load balancer is told about a Service on this node
//	virtual server  a frontend in IPVS
//	destination     a backend in IPVS; draining: with weight 0, for the connections it has
//	set, entry      an ipset and one of its members
//	chain, rule     in iptables
//
// Flow: source makes services, slices and nodes; catalog keeps them; plan turns
// them into frontends; a dataplane mode turns frontends into rows of the kernel.
package model
