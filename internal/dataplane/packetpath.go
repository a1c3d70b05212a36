package dataplane

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// Origin is where the first packet of a connection comes from.
type Origin string

// The origins, which rules treat differently.
const (
	FromPod     Origin = "pod"     // of this node, as far as the local detector can tell
	FromHost    Origin = "host"    // sent by this machine itself
	FromOutside Origin = "outside" // any other client
)

// Origins lists all.
func Origins() []Origin { return []Origin{FromPod, FromHost, FromOutside} }

// Packet is the first packet of a connection to a frontend.
type Packet struct {
	Origin Origin
	// Source is the address that it comes from; the zero Addr is any of the origin.
	Source netip.Addr
	To     model.Frontend
	// Detour is the frontend that To.Detour leads to; nil where there is none in force.
	Detour *model.Frontend
	// Node has the known facts about this node, for its pod ranges.
	Node model.Node
}

// End is the end of a packet's path.
type End string

// The ends.
const (
	EndForwarded End = "forwarded" // to one of the backends
	EndRefused   End = "refused"   // the client gets a reset or an ICMP message
	EndDropped   End = "dropped"   // the client gets no answer
)

// PacketPath is the way of a packet through a mode, as its rules are rendered.
type PacketPath struct {
	Steps []string `json:"steps"`
	End   End      `json:"end"`
	// Why is the reason where it is not forwarded.
	Why string `json:"why,omitempty"`
	// SourceKept: the backend sees the address of the client.
	SourceKept bool `json:"sourceKept"`
}

// Addf adds a step.
func (w *PacketPath) Addf(format string, args ...any) {
	w.Steps = append(w.Steps, fmt.Sprintf(format, args...))
}

// Stop ends the walk, for the reason that its last step gives.
func (w *PacketPath) Stop(end End, format string, args ...any) {
	w.End, w.Why = end, fmt.Sprintf(format, args...)
	w.Addf("%s: %s", end, w.Why)
}

// Ended reports whether the path of the packet ends here.
func (w *PacketPath) Ended() bool { return w.End != "" }

// InRanges tells what the source ranges of the frontend make of the packet; known is false
// where that depends on an address that is not told. Only a load-balancer address has any.
func (p Packet) InRanges() (in, known bool) {
	f := p.To
	switch {
	case len(f.SourceRanges) == 0:
		return true, true
	case p.Source.IsValid():
		return slices.ContainsFunc(f.SourceRanges, func(r netip.Prefix) bool { return r.Contains(p.Source) }), true
	}
	return false, false
}

// RangesText lists the source ranges.
func (p Packet) RangesText() string {
	out := make([]string, len(p.To.SourceRanges))
	for i, r := range p.To.SourceRanges {
		out[i] = r.String()
	}
	return strings.Join(out, ", ")
}

// BackendsText lists the first few backends that take new connections.
func BackendsText(all []model.Backend) string {
	var out []string
	for _, b := range all {
		if b.Weight > 0 {
			out = append(out, b.Addr.String())
		}
	}
	const few = 4
	if len(out) > few {
		return fmt.Sprintf("%s and %d more", strings.Join(out[:few], ", "), len(out)-few)
	}
	return strings.Join(out, ", ")
}
