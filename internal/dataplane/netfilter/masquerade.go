package netfilter

import (
	"slices"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// Masquerade is how both modes give a packet the node's own address as its source. As in
// kube-proxy, KUBE-MARK-MASQ marks the packet and KUBE-POSTROUTING rewrites its source.
type Masquerade struct {
	// Bit is the bit of the packet mark that asks for it: 0 to 31.
	Bit uint8
	// RandomFully reports whether this family's iptables knows --random-fully; nil
	// supposes that it does.
	RandomFully func(model.Family) bool
	// NodePorts is the port range of the API server's --service-node-port-range,
	// which a rewritten source port must not come from; the zero range is unknown.
	NodePorts PortRange
}

func (m Masquerade) mark() uint32 { return 1 << m.Bit }

// Value is the bit in hexadecimal.
func (m Masquerade) Value() string { return hex(m.mark()) }

// Marked matches packets that have the mark.
func (m Masquerade) Marked() Match { return Mark{m.mark(), m.mark()} }

// MarkRule sets the mark.
func (m Masquerade) MarkRule() Rule { return Always(SetMark{m.mark(), m.mark()}) }

// Rewrite returns the rules that rewrite the source of marked packets and remove the mark.
// The source port is never a NodePort (internal/DECISIONS.md, Source ports of masquerading).
func (m Masquerade) Rewrite(f model.Family) []Rule {
	const why = Comment("kubernetes service traffic requiring SNAT")
	list := []Rule{
		If(Not{m.Marked()}).Then(Return),
		Always(SetMark{Value: m.mark()}),
	}
	if ports := m.SourcePorts(); ports != (PortRange{}) {
		for _, p := range []Protocol{TCP, UDP, SCTP} {
			list = append(list, If(p, why).Then(SNAT{Ports: ports, Random: m.Random(f)}))
		}
	}
	return slices.Concat(list, []Rule{If(why).Then(SNAT{Random: m.Random(f)})})
}

// Random reports whether source ports are picked at random: where the tools of the family
// know how.
func (m Masquerade) Random(f model.Family) bool { return m.RandomFully == nil || m.RandomFully(f) }

// lowestSourcePort is the first port that the kernel takes for a masqueraded
// source port that was not privileged itself.
const lowestSourcePort = 1024

// SourcePorts is the bigger of the two ranges beside the NodePorts, which source ports are
// taken from; it is zero where there is no choice.
func (m Masquerade) SourcePorts() PortRange {
	r := m.NodePorts
	if r == (PortRange{}) {
		return r
	}
	below, above := int(r.First)-lowestSourcePort, 65535-int(r.Last)
	switch {
	case above > 0 && above >= below:
		return PortRange{r.Last + 1, 65535}
	case below > 0:
		return PortRange{lowestSourcePort, r.First - 1}
	}
	return PortRange{} // NodePorts are on all addresses: there is no range of ports to exclude
}
