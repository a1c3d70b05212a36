// Package measure counts what a program costs, whatever the program is, and sums samples up.
//
//	CPU time    a control group (v2) of the program's own, with every process that the program launches
//	memory      VmRSS in /proc/PID/status of each process in the group
//	machine     /proc/stat, and a loop whose speed shows how much other programs disturb the machine
//	samples     percentiles, and how far the two halves of a series agree
//
// The package knows nothing of Services. Times are seconds and memory is MiB, as in the files that package report writes.
package measure
