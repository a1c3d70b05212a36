package host

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/kube-ipvs/kube-ipvs/internal/diagnosis"
)

// askPortRange asks whether connections of this node may take ports of NodePorts.
func (h *Node) askPortRange(o HazardOptions) error {
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
