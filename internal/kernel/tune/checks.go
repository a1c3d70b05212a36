package tune

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
)

// CheckOptions select among the checks of this room.
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

// Checks returns the checks that need only this package; the caller adds those of other packages.
func (t *Tuner) Checks(opts CheckOptions) []Check {
	want := opts.ConnTabBits
	if want == 0 {
		want = t.SuggestConnTabBits()
	}
	checks := []Check{
		{Name: "kernel release", Run: t.checkRelease, Fix: "mount /proc"},
		{Name: "sysctls writable", Run: t.checkWritable,
			Fix: "mount the host's /proc/sys/net at /host/proc/sys/net, or set the sysctls on the host, or run privileged"},
		{Name: "connection tracking", Run: t.checkConntrack, Fix: t.ModuleFix("nf_conntrack")},
		{Name: connTabCheck, Run: func(context.Context) error { return t.checkConnTab(want) },
			Fix: fmt.Sprintf("echo 'options ip_vs conn_tab_bits=%d' > /etc/modprobe.d/ip_vs.conf and load ip_vs again, "+
				"or boot with ip_vs.conn_tab_bits=%d where it is built in", want, want)},
	}
	if opts.NoIPVS {
		checks = slices.DeleteFunc(checks, func(c Check) bool { return c.Name == connTabCheck })
	}
	if opts.IPv6 {
		checks = append(checks, Check{Name: "ipv6 forwarding", Run: t.checkForwarding6,
			Fix: "sysctl -w net.ipv6.conf.all.forwarding=1 (with accept_ra=2 on links that learn their router)"})
	}
	return checks
}

func (t *Tuner) checkRelease(context.Context) error {
	release, err := t.Release()
	if err != nil {
		return err
	}
	if _, ok := ParseVersion(release); !ok {
		return Warning(fmt.Errorf("kernel release %q has no version number", release))
	}
	return Note("%s", release)
}

// checkWritable opens a key for writing and writes nothing, which is where a
// read-only mount and a security module say no.
func (t *Tuner) checkWritable(context.Context) error {
	f, err := os.OpenFile(t.path("proc/sys/net/ipv4/ip_forward"), os.O_WRONLY, 0)
	if err != nil {
		// A node whose sysctls are right already needs no writing.
		return Warning(fmt.Errorf("sysctls cannot be set: %w", err))
	}
	return f.Close()
}

func (t *Tuner) checkConntrack(context.Context) error {
	_, err := os.Stat(t.path("proc/sys/net/netfilter/nf_conntrack_max"))
	if errors.Is(err, fs.ErrNotExist) {
		return Lacking(errors.New("no connection tracking in this kernel, or nf_conntrack is not loaded"))
	}
	return err
}

// checkConnTab looks at the size of the connection table, which is fixed when
// ip_vs is loaded; each packet walks a chain of connections over buckets.
func (t *Tuner) checkConnTab(want int) error {
	text, err := t.read("sys/module/ip_vs/parameters/conn_tab_bits")
	if errors.Is(err, fs.ErrNotExist) {
		return Warning(errors.New("size unknown: ip_vs is not loaded"))
	}
	if err != nil {
		return err
	}
	bits, err := strconv.Atoi(text)
	if err != nil {
		return fmt.Errorf("read conn_tab_bits: %w", err)
	}
	if bits < want {
		return Warning(fmt.Errorf("%d buckets (conn_tab_bits=%d), %d are recommended for this node (conn_tab_bits=%d)",
			1<<bits, bits, 1<<want, want))
	}
	return nil
}

func (t *Tuner) checkForwarding6(context.Context) error {
	value, err := t.read("proc/sys/net/ipv6/conf/all/forwarding")
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Lacking(errors.New("no IPv6 in this kernel"))
	case err != nil:
		return err
	case value == "0":
		return Warning(errors.New("net.ipv6.conf.all.forwarding=0: IPv6 packets to pods of other nodes are dropped"))
	}
	return nil
}

// SuggestConnTabBits returns a size of the IPVS connection table that fits the node's memory. It
// takes 8 bytes a bucket, at most a thousandth of the memory, within the limits of every kernel (8
// to 20). Without a known memory it is the kernel's default, 12.
func (t *Tuner) SuggestConnTabBits() int {
	const floor, ceiling, bucket, share = 12, 20, 8, 1000
	bits := floor
	for total := t.memory(); bits < ceiling && total/share >= bucket<<(bits+1); {
		bits++
	}
	return bits
}

// memory returns the bytes of memory of the node, 0 if unknown.
func (t *Tuner) memory() uint64 {
	b, err := os.ReadFile(t.path("proc/meminfo"))
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

// IPVSModule returns the module ip_vs with a connection table of 1<<bits buckets,
// for LoadModules; 0 leaves the size to the kernel.
func IPVSModule(bits int) string {
	if bits == 0 {
		return "ip_vs"
	}
	return fmt.Sprintf("ip_vs conn_tab_bits=%d", bits)
}
