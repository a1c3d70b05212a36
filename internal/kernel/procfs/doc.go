// Package procfs reads and writes files of the kernel below /proc and /sys, each under a deadline.
//
// It knows where sysctls of the network are if /proc/sys is read-only, and what the release of the
// kernel answers. It knows no key: packages sysctl and modules, and the checks of a node, do.
package procfs
