// Package netkey has the small values by which this program and the kernel name things of the
// network: address families, transport protocols, what a client dials, what is done to a row,
// and the errors that all subsystems of the kernel have in common. It imports the standard
// library alone, so that every package may use it.
package netkey
