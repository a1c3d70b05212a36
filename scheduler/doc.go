// Package scheduler describes the scheduling algorithms of the Linux IP Virtual Server as data. It
// has their names, their kernel modules, the flags that each accepts, and how each uses the weight
// of a destination.
//
// It parses and validates names and flags from configuration files and annotations, and does
// nothing else. The only way to learn whether the running kernel has an algorithm is to use it,
// which is not done here.
//
// Sources: net/netfilter/ipvs/ip_vs_*.c and include/uapi/linux/ip_vs.h of
// Linux 6.1 and 7.2, and ipvsadm(8).
package scheduler
