// Package vm runs a command where the kernel has IPVS.
//
// Many machines that build this project have no ip_vs: containers, cloud build hosts, small VMs.
// This package gives each of them the same entry point, Run. It boots a stock distribution kernel
// in QEMU with a root file system in RAM and runs the command there. The output is streamed back,
// and the exit status of the command is returned. Where the host kernel can do it, RunInNetns gives
// the command a fresh network namespace instead, and HostCan tells the two cases apart by trying.
//
//	Options ──> Prepare ──> kernel   (the host's own, or a package unpacked into the cache, never installed)
//	                   └──> root fs  (tools of the host with their libraries, modules; one cpio archive in the cache)
//	        ──> overlay              (init, configuration, the command, files copied in; one small archive a run)
//	        ──> QEMU                 console: kernel messages · output: the command · report: "up", "exit N"
//	         or User-mode Linux, built from the distribution's source into the cache, with a namespace of the host as its network
//
// It knows nothing of Kubernetes, IPVS rows, or the command. It is a place to run, not a test.
//
// Its law: nothing is left behind. The archives passed to QEMU are in anonymous memory, and QEMU
// ends with the runner. The host's package database and kernel are never changed (the lists of
// packages for that source are a copy of their own). Only the cache directory outside the
// repository stays.
//
// vmrun is the command over this package; README.md of this directory explains its use.
package vm
