// Package netkey has the small values by which this program and the kernel name objects of the
// network. These are address families, transport protocols, addresses with ports, operations on
// rows, and the errors that all subsystems of the kernel have in common. It imports the standard
// library alone, so that every package may use it.
package netkey
