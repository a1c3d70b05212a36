// Package sets owns the ipsets of ipvs mode and their entries: which sets there are, the entries
// of a frontend, and the two tables of their rows.
//
//	names.go     the sets, by kube-proxy's names where it has one
//	entries.go   the entries of a frontend, and those that its server needs (Guards)
//	registry.go  name, type, family and order of each set
//	manager.go   what is wanted, and sets that are lost or full
//	audit.go     audits of one set, and samples of all headers
//
// Rules refer to the sets by name, so a Service changes entries and no rule. Sets begin with
// kube-proxy's sizes and grow when the kernel refuses an entry.
package sets
