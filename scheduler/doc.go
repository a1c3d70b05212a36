// Package scheduler knows the scheduling algorithms of the Linux IP Virtual
// Server as data: their names, the kernel module that brings each, the flags
// each understands and what it makes of a destination's weight.
//
// It parses and validates what people write in a configuration file or an
// annotation, and does nothing else: whether the running kernel has an
// algorithm is found out by using it, not here.
//
// Sources: net/netfilter/ipvs/ip_vs_*.c and include/uapi/linux/ip_vs.h of
// Linux 6.1 and 7.2, and ipvsadm(8).
package scheduler
