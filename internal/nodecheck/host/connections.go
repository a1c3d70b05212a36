package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"github.com/kube-ipvs/kube-ipvs/internal/diagnosis"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/procfs"
)

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

// askConntrackUse warns before the table is full: new connections are dropped then
// ("nf_conntrack: table full, dropping packet").
func (h *Node) askConntrackUse(HazardOptions) error {
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
func (h *Node) askConnections(HazardOptions) error {
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
