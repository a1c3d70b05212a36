// Package plan decides, for one Service, on which addresses it answers and
// which of its endpoints each of them may use on this node.
//
// It knows nothing of the kernel, of files, of time or of other Services: who
// keeps an address that two Services claim is settled above. Whatever a mode
// needs to know stands in the outcome, so modes render and never decide.
//
// Flow: the agent hands in a Service with its EndpointSlices, as the catalog
// holds them, and gets a model.ServicePlan back:
//
//	Service ──► skip? ──► cluster IPs × ports ──► frontends (bind.go)
//	slices  ──► join by port name ──► candidates (join.go)
//	                                    │
//	           choice: ready, local, topology (choose.go) ──► backends
//
// The law it keeps: the plan is a function of its arguments and the Options
// alone. The order of slices, and of the endpoints in them, never shows; no
// argument is changed; the cost depends on this Service's endpoints and on
// nothing else in the cluster.
package plan
