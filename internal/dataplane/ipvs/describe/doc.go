// Package describe prints the rows of ipvs mode and the path of a packet, for operators. It changes no
// row.
//
//	describer.go    what it describes
//	rows.go         the rows of some frontends
//	text.go         all rows, desired or found, in the text of the operator's own tools
//	setcontents.go  sets with their entries
//	pending.go      rows that are not in place, as commands
//	packetpath.go   the path of the first packet of a connection
//	kernel.go       what the kernel has of some servers, without a mode
package describe
