// Package topology is the network of a benchmark: a node on which a candidate runs, a pod that sends requests, and one server that stands for
// every endpoint.
//
//	pod ── 10.244.0.9, and source addresses 10.244.128.0/17 ──> node ──> backends: 10.128.0.0/12, all endpoints
//	                                                             └─────> backends: 10.96.0.0/16, without a listener
//
// An endpoint needs no address of its own: a local route makes the whole range local to the server,
// which reports the address it was reached at. In the same way the pod has a source address for
// each request. Source ports repeat after some ten thousand connections, and would match entries of
// connection tracking and IPVS from earlier ones. A Service that no proxy carries is refused at
// once, so no request waits for a time-out.
//
// The package knows neither the candidate nor what is measured. All that it makes is in namespaces, which end with the process.
package topology
