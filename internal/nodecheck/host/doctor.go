package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/kube-ipvs/kube-ipvs/internal/diagnosis"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/procfs"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/sysctl"
)

// DoctorOptions say what the agent would do here.
type DoctorOptions struct {
	// IPVS asks for what ipvs mode is hurt by.
	IPVS bool
	// IPv6 means that the agent serves IPv6.
	IPv6 bool
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

// DiskSpace is the free space of a file system: bytes, and inodes. A number without a bound is
// math.MaxUint64.
type DiskSpace struct {
	Bytes, Files uint64
}

// Doctor returns questions about what hurts Services that this node carries, or would
// carry: each is answered from files of the kernel, and nothing is changed. Most warn
// at worst. Missing are sysctls that the agent needs and cannot set, a run directory in which it cannot
// make files, and rules that may not name sets.
func (h *Node) Doctor(o DoctorOptions) []diagnosis.Check {
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
		ask  func(DoctorOptions) error
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

// askRunDir asks the nearest directory that is there, and makes none. Lock and socket are
// files that the agent makes at its start; the journal is one that has content.
func (h *Node) askRunDir(o DoctorOptions) error {
	dir, err := nearest(h.runDir)
	if err != nil {
		return diagnosis.Remedied(diagnosis.Lacking(fmt.Errorf("%s is not writable: %w; the agent would not start", dir, err)),
			fmt.Sprintf("run as root, mount the host's %s writable, or choose another with --run-dir", h.runDir))
	}
	fix := fmt.Sprintf("free space on the file system of %s, or choose another directory with --run-dir", dir)
	switch space, err := o.DiskSpace(dir); {
	case err != nil:
		return fmt.Errorf("read the free space of %s: %w", dir, err)
	case space.Files == 0:
		return diagnosis.Remedied(diagnosis.Lacking(fmt.Errorf("%s has no free inodes; the agent would not start", dir)), fix)
	case space.Bytes == 0:
		return diagnosis.Remedied(diagnosis.Warning(fmt.Errorf("%s is full: the agent cannot save the sysctls that it changes, so cleanup would not restore them", dir)), fix)
	}
	return nil
}

// nearest is the directory itself or the first above it that is there, and why it cannot be
// written to.
func nearest(dir string) (string, error) {
	for {
		err := unix.Access(dir, unix.W_OK)
		if !errors.Is(err, fs.ErrNotExist) || dir == filepath.Dir(dir) {
			return dir, err
		}
		dir = filepath.Dir(dir)
	}
}

// diskSpaceOf counts the blocks that are reserved for root, too: the agent is root. Some file systems make
// files as long as they have bytes, and say 0 of 0.
func diskSpaceOf(dir string) (DiskSpace, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return DiskSpace{}, err
	}
	space := DiskSpace{Bytes: math.MaxUint64, Files: math.MaxUint64}
	if s.Blocks > 0 {
		space.Bytes = s.Bfree * uint64(s.Bsize)
	}
	if s.Files > 0 {
		space.Files = s.Ffree
	}
	return space, nil
}

// askSets opens what iptables's match of sets opens to ask for one (extensions/libxt_set.h,
// get_version).
func (h *Node) askSets(o DoctorOptions) error {
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

// askSysctls lists the keys that the agent is going to change, and those that it cannot.
func (h *Node) askSysctls(o DoctorOptions) error {
	var later, set, never, fix []string
	mark := diagnosis.Warning
	for _, s := range o.Sysctls {
		name, err := procfs.SysctlPath(s.Key)
		if err != nil {
			return err
		}
		have, err := h.files.Read(name)
		switch {
		case errors.Is(err, fs.ErrNotExist): // its module is not loaded, which others tell
			continue
		case err != nil:
			return fmt.Errorf("read sysctl %s: %w", s.Key, err)
		case have == s.Value:
			continue
		}
		text := fmt.Sprintf("%s=%s must be %s (%s)", s.Key, have, s.Value, s.Why)
		if h.writable(name) {
			later, set = append(later, text), append(set, s.String())
			continue
		}
		never, fix = append(never, text), append(fix, s.String())
		if s.Policy == sysctl.Required {
			mark = diagnosis.Lacking
		}
	}
	switch {
	case len(never) > 0:
		return diagnosis.Remedied(mark(fmt.Errorf("cannot be set from here: %s", strings.Join(never, ", "))),
			sysctl.OnHost(fix))
	case len(later) > 0 && o.Running:
		return diagnosis.Remedied(diagnosis.Warning(fmt.Errorf("changed by another program, the agent repairs them at its next audit: %s", strings.Join(later, ", "))), "sysctl -w "+strings.Join(set, " "))
	case len(later) > 0:
		return diagnosis.Note("the agent sets them when it starts: %s", strings.Join(later, ", "))
	}
	return nil
}

// writable opens a key for writing and writes nothing.
func (h *Node) writable(name string) bool {
	f, err := os.OpenFile(h.files.Path(name), os.O_WRONLY, 0)
	if err != nil {
		return false
	}
	return f.Close() == nil
}

// askConntrackUse warns before the table is full: new connections are dropped then
// ("nf_conntrack: table full, dropping packet").
func (h *Node) askConntrackUse(DoctorOptions) error {
	count, err := h.count("proc/sys/net/netfilter/nf_conntrack_count")
	if errors.Is(err, fs.ErrNotExist) {
		return diagnosis.Note("not loaded")
	}
	if err != nil {
		return err
	}
	most, err := h.count("proc/sys/net/netfilter/nf_conntrack_max")
	if err != nil {
		return err
	}
	if most > 0 && count*10 >= most*8 { // 0 is without a limit
		return diagnosis.Remedied(diagnosis.Warning(fmt.Errorf("%d of %d connections: new connections are dropped when the table is full", count, most)),
			fmt.Sprintf("sysctl -w net.netfilter.nf_conntrack_max=%d, and permanently --conntrack-min=%[1]d", 2*most))
	}
	return diagnosis.Note("%d of %d connections", count, most)
}

func (h *Node) count(name string) (int, error) {
	text, err := h.files.Read(name)
	if err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0, fmt.Errorf("read %s: %w", name, err)
	}
	return n, nil
}

// chainLength is how many connections a bucket may have before each packet pays for it.
const chainLength = 4

// askConnections compares the connections that IPVS has with its buckets. The kernel
// tells both per destination (ip_vs_info_seq_show); a table of another network
// namespace is not in there.
func (h *Node) askConnections(DoctorOptions) error {
	bits, err := h.count("sys/module/ip_vs/parameters/conn_tab_bits")
	if errors.Is(err, fs.ErrNotExist) {
		return diagnosis.Note("not loaded")
	}
	if err != nil {
		return err
	}
	text, err := os.ReadFile(h.files.Path("proc/net/ip_vs"))
	if errors.Is(err, fs.ErrNotExist) {
		return diagnosis.Note("unknown: this kernel has no /proc/net/ip_vs")
	}
	if err != nil {
		return err
	}
	n := 0
	for line := range strings.Lines(string(text)) {
		// -> address:port forward weight active inactive
		f := strings.Fields(line)
		if len(f) < 6 || f[0] != "->" || f[1] == "RemoteAddress:Port" {
			continue
		}
		for _, column := range f[4:6] {
			c, err := strconv.Atoi(column)
			if err != nil {
				return fmt.Errorf("read /proc/net/ip_vs: %w", err)
			}
			n += c
		}
	}
	buckets := 1 << bits
	if n > chainLength*buckets {
		want := bits
		for want < 20 && n > 1<<want {
			want++
		}
		return diagnosis.Remedied(diagnosis.Warning(fmt.Errorf("%d connections in %d buckets: each lookup walks %d entries", n, buckets, n/buckets)),
			fmt.Sprintf("echo 'options ip_vs conn_tab_bits=%d' > /etc/modprobe.d/ip_vs.conf and restart the node", want))
	}
	return diagnosis.Note("%d connections, %d buckets", n, buckets)
}

// askPortRange asks whether connections of this node may take ports of NodePorts.
func (h *Node) askPortRange(o DoctorOptions) error {
	first, last := int(o.NodePorts[0]), int(o.NodePorts[1])
	if last == 0 {
		return diagnosis.Note("no range is set aside")
	}
	text, err := h.files.Read("proc/sys/net/ipv4/ip_local_port_range")
	if err != nil {
		return err
	}
	var low, high int
	if _, err := fmt.Sscan(text, &low, &high); err != nil {
		return fmt.Errorf("read ip_local_port_range %q: %w", text, err)
	}
	reserved, err := h.files.Read("proc/sys/net/ipv4/ip_local_reserved_ports")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	from, to := max(first, low), min(last, high)
	if from > to || covered(reserved, from, to) {
		return nil
	}
	all := fmt.Sprintf("%d-%d", first, last)
	if reserved != "" {
		all = reserved + "," + all
	}
	return diagnosis.Remedied(diagnosis.Warning(fmt.Errorf("outgoing connections of this node may use ports %d-%d of the NodePort range (net.ipv4.ip_local_port_range=%d %d)", from, to, low, high)),
		"sysctl -w net.ipv4.ip_local_reserved_ports="+all+", or set --service-node-port-range to that of the API server")
}

// covered reports whether a list such as 8080,30000-32767 has each port of a range.
func covered(list string, from, to int) bool {
	type span struct{ from, to int }
	var spans []span
	for part := range strings.SplitSeq(list, ",") {
		low, high, ok := strings.Cut(strings.TrimSpace(part), "-")
		if !ok {
			high = low
		}
		a, errA := strconv.Atoi(low)
		b, errB := strconv.Atoi(high)
		if errA == nil && errB == nil {
			spans = append(spans, span{a, b})
		}
	}
	slices.SortFunc(spans, func(a, b span) int { return a.from - b.from })
	for _, s := range spans {
		if s.from <= from && from <= s.to {
			from = s.to + 1
		}
	}
	return from > to
}
