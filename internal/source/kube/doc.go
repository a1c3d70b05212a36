// Package kube feeds a Sink from a Kubernetes API server: Services, EndpointSlices
// and Nodes, each followed by one reflector of client-go.
//
// No object of the API is kept. What arrives is converted at once into values of
// model and handed to the Sink; all that stays here is the name of each object that
// was delivered, so that a new list can tell what is gone. The catalog behind the
// Sink is the only copy.
//
//	API server ─► caller, stream ─► reflector ─► store ─► Sink
//	              convert, note      list, watch   (the name is remembered)
//	              how it does        and again
//
// The first list is handed on object by object while it is streamed, so that an empty
// kernel can be filled meanwhile (source.Listing); its end takes back what is not in it.
// Nothing can be filled without the Nodes, and everything on a new node waits for the
// API server's own Service, so these are asked for first (prioritylist.go), and the large lists
// begin when they were delivered; what is slow or fails of this holds them up by priorityListLimit
// at most.
//
// The law it keeps: an API server that is away, slow, restarted or short of memory
// changes nothing. A watch that ends is begun again, a list that fails is tried again
// with backoff, and until it succeeds what was delivered stays delivered. Only a
// deletion that the server tells, or a complete list without the object, deletes.
//
// A complete list may be empty: an etcd that was restored from nothing, a kubeconfig
// of another cluster. Then everything goes, as with kube-proxy. To guess which empty
// list is meant would be to keep traffic on what somebody deleted. What is no list of
// an API server at all, a page of a proxy or any other JSON, is not taken for one.
package kube
