// Package destinations owns the destinations of the virtual servers of ipvs mode: the backends of
// each frontend with their weights, and backends that left and still have connections.
//
//	manager.go    the table, its store, and what a frontend wants
//	drain.go      a backend that leaves keeps weight 0 until its connections end
//	deadlines.go  when drains end at the latest
//	slowstart.go  a backend that comes beside others climbs to its weight
//	trash.go      drained destinations wait while the kernel keeps many deleted ones
//	order.go      each node adds destinations in an order of its own
//	moving.go     what drains and what climbs, for readers
//	packing.go    16-byte keys of IPv4
//
// Everything that depends on time gets it as an argument: a pass decides (OnPass), and Due tells
// the loop when the next decision is.
package destinations
