// Package addresses owns what makes service addresses local to this machine in ipvs mode, so that
// their packets come to IPVS.
//
//	manager.go  the tables "addresses", "routes" and "detached", and what a frontend wants
//	binding.go  each address is bound to kube-ipvs0, or one route makes a range local
//	capture.go  ports of addresses that another machine has
//	dsr.go      backends that have the address of a frontend, and answer from it
//	stores.go   reads and writes of kernel/link
package addresses
