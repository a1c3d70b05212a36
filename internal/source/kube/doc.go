// Package kube feeds a Sink from a Kubernetes API server: Services, EndpointSlices
// and Nodes, each followed by one reflector of client-go.
//
// No object of the API is kept. What arrives is stripped to what is read of it,
// converted at once into values of model and handed to the Sink; all that stays
// here is the name of each object that was delivered, so that a new list can tell
// what is gone. The catalog behind the Sink is the only copy.
//
//	list or stream ─► strip ─► convert ─► Sink
//	watch          ─►                     (the name is remembered)
//
// The law it keeps: an API server that is away, slow, restarted or short of memory
// changes nothing. A watch that ends is begun again, a list that fails is tried again
// with backoff, and until it succeeds what was delivered stays delivered. Only a
// deletion that the server tells, or a complete list without the object, deletes.
package kube
