// Package backend is the workload of end-to-end runs: a server that answers with its name and its peer's address, and a client that counts.
//
// A load balancer shows itself in two facts only: which backend answered, and from which address the request seemed to come.
// So every answer, in every protocol, is the one line that Reply describes.
//
//	client ──"ask\n"──> TCP, SCTP: one line out for each line in; an HTTP request line is answered with HTTP
//	       ──datagram─> UDP: one datagram out for each one in, from the address that was asked
//	       <─"web-1 local=10.244.0.11:8080 client=10.244.0.1:51234\n"
//
// Listen and Serve are the server, Ask, Dial and Stream the client, Tally the result. cmd/backend is the program over them.
//
// It knows nothing of IPVS, Kubernetes or namespaces. It is started where the test wants it and
// sees only sockets.
//
// Its law: no third-party protocol library and no state, so that what fails is the path and never the workload.
package backend
