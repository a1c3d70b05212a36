// Package world is the network of a benchmark: a node on which a candidate runs, a pod that asks, and one server that stands for every
// endpoint there is.
//
//	pod ── 10.244.0.9, and 10.244.128.0/17 to ask from ──> node ──> farm: 10.128.0.0/12, all endpoints
//	                                                        └─────> farm: 10.96.0.0/16, where nobody listens
//
// Nothing needs an address per endpoint: the farm takes a whole range as its own (a local route), and says which of them it was reached at.
// The same way the pod has as many addresses as it has questions: source ports come back after some ten thousand connections, and would meet
// what connection tracking and IPVS remember of the earlier ones. A Service that no proxy carries is refused at once, so nobody waits for a
// time-out.
//
// What this room may not know: who carries Services, and what is measured. All that it makes is in namespaces, which end with it.
package world
