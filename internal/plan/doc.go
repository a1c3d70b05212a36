// Package plan decides, for one Service, on which addresses it answers and
// which of its endpoints each of them may use on this node.
//
// It knows nothing of the kernel, of files, of time or of other Services: the owner of an address that
// two Services claim is settled above. All facts that a mode needs are in the result, so modes
// render and never decide.
//
// Flow: the agent hands in a Service with its EndpointSlices, as the catalog
// holds them, and gets a model.ServicePlan back:
//
//	Service ──► ours? ──► usable ports × addresses of every kind ──► bindings
//	            refuse.go  ports.go            addresses.go, detour.go  │
//	slices  ──► join by port name ──► candidates (endpoints.go)         │
//	                                    │                               ▼
//	           ready, local, topology.go ──► groups ──► frontends
//	                                      backends.go  compile.go
//
// A group is one port in one family: its frontends share the two lists that
// topology.go knows, by the policy of their kind.
//
// Explain (explain.go) tells of each endpoint which of its port's lists take it, and why.
//
// The law it keeps: the plan is a function of its arguments and the Options alone. The order of
// slices, of their endpoints, and of the Service's addresses has no effect. No argument is changed.
// The cost depends only on the endpoints and addresses of this Service. Options.Affects tells which
// plans a change of the Options can touch.
package plan
