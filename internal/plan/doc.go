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
//	Service ──► ours? ──► usable ports × addresses of every kind ──► bindings
//	            refuse.go  ports.go            bind.go, detour.go       │
//	slices  ──► join by port name ──► candidates (join.go)              │
//	                                    │                               ▼
//	           ready, local, topology (choose.go) ──► groups ──► frontends
//	                                                  group.go   compile.go
//
// A group is one port in one family: its frontends share the two lists that
// choose.go knows, by the policy of their kind.
//
// Explain (explain.go) says of each endpoint what its port's lists make of it, and why.
//
// The law it keeps: the plan is a function of its arguments and the Options
// alone. The order of slices, of the endpoints in them, and of the Service's
// addresses never shows; no argument is changed; the cost depends on this
// Service's endpoints and addresses and on nothing else in the cluster.
// Options.Concerns says which plans a change of the Options can touch.
package plan
