package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/kube-ipvs/kube-ipvs/internal/diagnosis"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/procfs"
)

// CheckOptions select among the checks of this package.
type CheckOptions struct {
	// IPv6 asks for what serving IPv6 needs.
	IPv6 bool
	// NoIPVS leaves out what IPVS alone needs.
	NoIPVS bool
	// ConnTabBits is the wanted size of the IPVS connection table as a power of
	// two; 0 asks SuggestConnTabBits.
	ConnTabBits int
}

// connTabCheck is the name of the check that looks at IPVS's own table.
const connTabCheck = "ipvs connection table"

// Checks returns the questions about the kernel itself.
func (h *Node) Checks(opts CheckOptions) []diagnosis.Check {
	want := opts.ConnTabBits
	if want == 0 {
		want = SuggestConnTabBits(h.files)
	}
	checks := []diagnosis.Check{
		{Name: "kernel release", Run: h.checkRelease, Fix: "mount /proc"},
		{Name: "sysctls writable", Run: h.checkWritable,
			Fix: "mount the host's /proc/sys/net at /host/proc/sys/net, or set the sysctls on the host, or run privileged"},
		{Name: "connection tracking", Run: h.checkConntrack, Fix: h.modules.Fix("nf_conntrack")},
		{Name: connTabCheck, Run: func(context.Context) error { return h.checkConnTab(want) },
			Fix: fmt.Sprintf("echo 'options ip_vs conn_tab_bits=%d' > /etc/modprobe.d/ip_vs.conf and load ip_vs again, "+
				"or boot with ip_vs.conn_tab_bits=%d where it is built in", want, want)},
	}
	if opts.NoIPVS {
		checks = slices.DeleteFunc(checks, func(c diagnosis.Check) bool { return c.Name == connTabCheck })
	}
	if opts.IPv6 {
		checks = append(checks, diagnosis.Check{Name: "ipv6 forwarding", Run: h.checkForwarding6,
			Fix: "sysctl -w net.ipv6.conf.all.forwarding=1 (with accept_ra=2 on links that learn their router)"})
	}
	return checks
}

func (h *Node) checkRelease(context.Context) error {
	release, err := h.files.Release()
	if err != nil {
		return err
	}
	if _, ok := procfs.ParseVersion(release); !ok {
		return diagnosis.Warning(fmt.Errorf("kernel release %q has no version number", release))
	}
	return diagnosis.Note("%s", release)
}

// checkWritable opens a key for writing and writes nothing, which is where a
// read-only mount and a security module say no.
func (h *Node) checkWritable(context.Context) error {
	f, err := os.OpenFile(h.files.Path("proc/sys/net/ipv4/ip_forward"), os.O_WRONLY, 0)
	if err != nil {
		// A node whose sysctls are right already needs no writing.
		return diagnosis.Warning(fmt.Errorf("sysctls cannot be set: %w", err))
	}
	return f.Close()
}

func (h *Node) checkConntrack(context.Context) error {
	_, err := os.Stat(h.files.Path("proc/sys/net/netfilter/nf_conntrack_max"))
	if errors.Is(err, fs.ErrNotExist) {
		return diagnosis.Lacking(errors.New("no connection tracking in this kernel, or nf_conntrack is not loaded"))
	}
	return err
}

// checkConnTab looks at the size of the connection table, which is fixed when
// ip_vs is loaded; each packet walks a chain of connections over buckets.
func (h *Node) checkConnTab(want int) error {
	text, err := h.files.Read("sys/module/ip_vs/parameters/conn_tab_bits")
	if errors.Is(err, fs.ErrNotExist) {
		return diagnosis.Warning(errors.New("size unknown: ip_vs is not loaded"))
	}
	if err != nil {
		return err
	}
	bits, err := strconv.Atoi(text)
	if err != nil {
		return fmt.Errorf("read conn_tab_bits: %w", err)
	}
	if bits < want {
		return diagnosis.Warning(fmt.Errorf("%d buckets (conn_tab_bits=%d), %d are recommended for this node (conn_tab_bits=%d)",
			1<<bits, bits, 1<<want, want))
	}
	return nil
}

func (h *Node) checkForwarding6(context.Context) error {
	value, err := h.files.Read("proc/sys/net/ipv6/conf/all/forwarding")
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return diagnosis.Lacking(errors.New("no IPv6 in this kernel"))
	case err != nil:
		return err
	case value == "0":
		return diagnosis.Warning(errors.New("net.ipv6.conf.all.forwarding=0: IPv6 packets to pods of other nodes are dropped"))
	}
	return nil
}

// SuggestConnTabBits returns a size of the IPVS connection table that fits the node's memory, inside
// what every kernel accepts (8 to 20). A bucket has 8 bytes, and all have at most a thousandth of the
// memory. If that is unknown, the size is the kernel's default, 12.
func SuggestConnTabBits(files procfs.Files) int {
	const floor, ceiling, bucket, share = 12, 20, 8, 1000
	bits := floor
	for total := memory(files); bits < ceiling && total/share >= bucket<<(bits+1); {
		bits++
	}
	return bits
}

// memory returns the bytes of memory of the node, 0 if unknown.
func memory(files procfs.Files) uint64 {
	b, err := os.ReadFile(files.Path("proc/meminfo"))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "MemTotal:"); ok {
			kib, _ := strconv.ParseUint(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
			return kib << 10
		}
	}
	return 0
}
