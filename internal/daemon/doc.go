// Package daemon is the agent as a process: it opens the kernel, chooses the mode, and runs the
// loop with all tasks beside it until a signal stops it.
//
//	Run ──► lock, socket, sources ──► openKernel: ipvs, or iptables where IPVS is missing
//	    ──► newDaemon: modes, loop, metrics, Events ──► tasks
//
// Only handles.go connects concrete packages to each other. A task ends with the daemon; one that
// fails ends it. Cleanup, which removes all that the agent has written, shares the handles and the
// lock, and so is here, too.
package daemon
