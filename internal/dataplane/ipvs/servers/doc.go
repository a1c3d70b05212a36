// Package servers owns the virtual servers of ipvs mode, one for each frontend.
//
//	manager.go  the table, its store, and what a frontend wants
//	staging.go  servers with many destinations are created without a scheduler and activated later
//	quiesce.go  no client is refused while a server changes its scheduler
//
// Whose a server is decides package ownership; what a server waits for decides the mode.
package servers
