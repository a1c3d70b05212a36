package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"

	"github.com/kube-ipvs/kube-ipvs/internal/diagnosis"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/procfs"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/sysctl"
)

// HazardOptions say what the agent would do here.
type HazardOptions struct {
	// IPVS asks for what ipvs mode is hurt by.
	IPVS bool
	// IPv6 means that the agent serves IPv6.
	IPv6 bool
	// Device is the link that has the addresses of Services in ipvs mode.
	Device string
	// Sysctls are those that the agent sets at its start.
	Sysctls []sysctl.Sysctl
	// StrictARP means that the agent sets strict ARP.
	StrictARP bool
	// Running means that an agent answers, which has its listeners.
	Running bool
	// NodePorts are the first and the last port that NodePorts are taken from; 0, 0
	// where none is set aside.
	NodePorts [2]uint16
	// ChecksumOffload reports whether a link leaves the checksums of packets that it sends to
	// the hardware; nil asks the kernel (ETHTOOL_GTXCSUM).
	ChecksumOffload func(link string) (bool, error)
	// RawSocket opens a raw socket and closes it; nil asks the kernel.
	RawSocket func() error
	// DiskSpace returns what is left of the file system of a directory; nil asks the kernel
	// (statfs(2)).
	DiskSpace func(dir string) (DiskSpace, error)
}

// Hazards returns questions about what hurts Services that this node carries, or would
// carry: each is answered from files of the kernel, and nothing is changed. Most warn
// at worst. Missing are sysctls that the agent needs and cannot set, a run directory in which it cannot
// make files, and rules that may not name sets.
func (h *Node) Hazards(o HazardOptions) []diagnosis.Check {
	if o.ChecksumOffload == nil {
		o.ChecksumOffload = checksumOffload
	}
	if o.RawSocket == nil {
		o.RawSocket = rawSocket
	}
	if o.DiskSpace == nil {
		o.DiskSpace = diskSpaceOf
	}
	type question struct {
		name string
		ask  func(HazardOptions) error
		ipvs bool
	}
	var checks []diagnosis.Check
	for _, q := range []question{
		{"run directory", h.askRunDir, false},
		{"sets in rules", h.askSets, true},
		{"sysctls", h.askSysctls, false},
		{"connection tracking in use", h.askConntrackUse, false},
		{"ipvs connections", h.askConnections, true},
		{"bridged traffic", h.askBridges, false},
		{"reverse path filter", h.askReversePath, false},
		{"vxlan checksum offload", h.askVXLAN, false},
		{"strict arp", h.askARP, true},
		{"other owners of ipvs", h.askOwners, true},
		{"kube-proxy", h.askKubeProxy, false},
		{"systemd-networkd", h.askNetworkd, true},
		{"network plug-in", h.askPlugin, false},
		{"node port range", h.askPortRange, false},
	} {
		if q.ipvs && !o.IPVS {
			continue
		}
		checks = append(checks, diagnosis.Check{Name: q.name, Fix: "run as root, with the host's /proc and /sys mounted",
			Run: func(ctx context.Context) error { return procfs.Bounded(ctx, func() error { return q.ask(o) }) }})
	}
	return checks
}

// askSets opens what iptables's match of sets opens to ask for one (extensions/libxt_set.h,
// get_version).
func (h *Node) askSets(o HazardOptions) error {
	err := o.RawSocket()
	if errors.Is(err, fs.ErrPermission) {
		return diagnosis.Remedied(diagnosis.Lacking(fmt.Errorf("iptables needs a raw socket for rules that name a set: %w; the agent would serve no new Services", err)),
			"grant CAP_NET_RAW: capabilities.add in the pod, CapabilityBoundingSet in the unit")
	}
	if err != nil {
		return fmt.Errorf("open a raw socket: %w", err)
	}
	return nil
}

func rawSocket() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_RAW)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}
