// Package servers owns the virtual servers of ipvs mode, one for each frontend.
//
//	manager.go  the table, its store, and what a frontend wants
//	staging.go  servers with many destinations are created without a scheduler and activated later
//	quiesce.go  no client is refused while a server changes its scheduler
//
// Package ownership decides whose a server is, and the mode what a server waits for.
package servers
