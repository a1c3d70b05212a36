// Package agent is the single loop of kube-ipvs: wait, take, compile, set,
// apply, record.
//
//	catalog ── dirty services ──► compile ──► mode.Set ──► mode.Apply ──► kernel
//	   ▲                                                       │
//	sources                                    Result ── retry, log, metrics, status
//
// The loop goroutine alone touches the compiler, the mode and, through it, every
// kernel handle. Others have the loop run a function for them (Do) and so read a
// state between two cycles; there is no lock and no copy kept for nobody.
//
// The loop also puts together the model.Host that plans are made for: our Node and
// the addresses of all nodes from the catalog, what is on the links from the
// machine. Another host compiles again the Services that it concerns, and no other.
//
// The laws it keeps: nothing is changed of what the kernel carries until every source has
// said what it can (in sync), while an empty kernel is filled as Services come; the host and the kernel are read before the first write; what merely looks
// orphaned stays while some input could not be read; what failed is retried with
// backoff, and nothing else with it.
package agent
