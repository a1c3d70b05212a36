// Package meter counts what a program costs, whatever it is and however it does its work: exactly where the kernel can tell, and it says
// where the kernel cannot.
//
//	CPU time     a control group (v2) of the program's own: also of what it launched and never waited for
//	processes    the kernel's process events (CN_PROC of Documentation/driver-api/connector.rst), else all of the machine's (/proc/stat)
//	memory       /proc/PID/status of all that is in the group
//	netlink      a device of kind nlmon in the program's network namespace, which gets a copy of all datagrams there
//	machine      /proc/stat; and a loop and a process of its own, whose speed is how much the machine is disturbed by others
//
// What this room may not know: Services, and what the program is for.
package meter
