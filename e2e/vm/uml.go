package vm

import (
	"fmt"
	"path/filepath"
)

// accelUML is no accelerator: the guest's kernel is itself a program of the host (User-mode Linux,
// Documentation/virt/uml/user_mode_linux_howto_v2.rst). It computes at full speed; system calls,
// page faults and new processes cost several times what they cost natively, where under emulation
// they cost twenty times as much. It has one CPU. With several it would make a system call of the
// host each time that it disables or enables interrupts, and take almost twice as long for
// everything.
const accelUML = "uml"

// accelUMLNFT is User-mode Linux whose kernel has neither ipset nor iptables.
const accelUMLNFT = "uml-nft"

// accelUMLNoIPVS is User-mode Linux whose kernel has no IPVS.
const accelUMLNoIPVS = "uml-noipvs"

// umlLink is the link of the host that becomes the guest's. Its frames go through a packet socket: opening a tap device is a fault in Linux 7.2.
const umlLink = "guest"

// link is the name of the link of the host whose frames are the guest's.
func (o *Options) link() string {
	if o.Link != "" {
		return o.Link
	}
	return umlLink
}

// umlArgs builds the command line of such a kernel. Directory dir is its own, for as long as it runs.
func umlArgs(o Options, dir string) []string {
	return []string{
		fmt.Sprintf("mem=%dM", o.MemoryMiB),
		"seccomp=on", // it switches several times faster than by ptrace
		fmt.Sprintf("initrd=/proc/self/fd/%d", fdInitrd), "rdinit=/init", "quiet", "dummy.numdummies=0", "panic=-1",
		"uml_dir=" + filepath.Join(dir, "uml"), "umid=guest",
		"con=null", fmt.Sprintf("con0=null,fd:%d", fdConsole),
		"ssl=null", fmt.Sprintf("ssl0=null,fd:%d", fdOutput), fmt.Sprintf("ssl1=null,fd:%d", fdReport),
		"vec0:transport=raw,ifname=" + o.link() + ",depth=128,gro=1",
	}
}

// umlShare is the line of guestConfig for a directory that such a guest mounts from its host by itself.
func umlShare(share Share) string {
	access := "ro"
	if share.Writable {
		access = "rw"
	}
	return fmt.Sprintf("none hostfs %s,%s %s\n", access, share.Host, share.Guest)
}
