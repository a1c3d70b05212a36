// Package vm runs a command where the kernel has IPVS.
//
// Many machines that build this project have no ip_vs: containers, cloud build hosts, small VMs. This room gives each of them the
// same door, Run: a stock distribution kernel is booted in QEMU over a root file system held in RAM, the command runs there, its
// output streams back and its exit status becomes ours. Where the host kernel can do it, RunInNetns gives the command a fresh
// network namespace instead, and HostCan tells the two cases apart by trying.
//
//	Options ──> Prepare ──> kernel   (the host's own, or a package unpacked into the cache, never installed)
//	                   └──> root fs  (tools of the host with their libraries, modules; one cpio archive in the cache)
//	        ──> overlay              (init, configuration, the command, files copied in; one small archive a run)
//	        ──> QEMU                 console: kernel messages · output: the command · report: "up", "exit N"
//	         or a kernel that is a program, built from the distribution's source into the cache, with a namespace of the host as its network
//
// What this room may not know: Kubernetes, IPVS rows, or anything the command does. It is a place to run, not a test.
//
// Its law: nothing is left behind. The archives handed to QEMU live in anonymous memory, QEMU dies with the runner, the host's
// package database and kernel are never changed (the lists of packages for that source are a copy of their own), and the only thing that stays is the cache directory outside the repository.
//
// vmrun is the command over this package; README.md of this directory says how to use it.
package vm
