// Package kube feeds a Sink from a Kubernetes API server: Services, EndpointSlices
// and Nodes, each followed by one reflector of client-go.
//
// No object of the API is kept. Objects are converted at once into values of model and given to the
// Sink. Only the names of delivered objects stay here, so that a new list shows which objects are
// gone. The catalog behind the Sink is the only copy.
//
//	API server ─► caller, stream ─► reflector ─► store ─► Sink
//	              convert, note      list, watch   (the name is kept)
//	              how it does        and again
//
// The objects of the first list are delivered while the list is streamed, so that an empty kernel
// can be filled meanwhile (source.Listing). At its end, objects that the list does not have are
// taken back. Nothing can be written without the Nodes, and everything on a new node waits for the
// kubernetes Service, so these are listed first (prioritylist.go). The large lists begin when these
// are delivered, after priorityListLimit at the latest.
//
// The law it keeps: an API server that is away, slow, restarted or short of memory
// changes nothing. A watch that ends is begun again, a list that fails is tried again
// with backoff, and until it succeeds what was delivered stays delivered. Only a
// deletion that the server tells, or a complete list without the object, deletes.
//
// A complete list may be empty: an etcd that was restored from nothing, a kubeconfig of another
// cluster. Then everything goes, as with kube-proxy. Ignoring an empty list would keep traffic on
// objects that were deleted. An answer that is no list of an API server, such as a page of a proxy
// or other JSON, is not accepted as a list.
package kube
