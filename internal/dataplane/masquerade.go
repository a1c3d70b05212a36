package dataplane

import (
	"fmt"
	"slices"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// Masquerade is how all modes give a packet the node's own address as its source. As in
// kube-proxy, KUBE-MARK-MASQ marks the packet and KUBE-POSTROUTING rewrites its source.
type Masquerade struct {
	// Bit is the bit of the packet mark that asks for it: 0 to 31.
	Bit uint8
	// RandomFully tells whether this family's iptables knows --random-fully; nil
	// supposes that it does.
	RandomFully func(model.Family) bool
	// NodePorts is the port range of the API server's --service-node-port-range,
	// which a rewritten source port must not come from; the zero range is unknown.
	NodePorts PortRange
}

// PortRange is a range of ports with both ends; the zero value is none.
type PortRange struct{ First, Last uint16 }

// Value is the bit as iptables-save prints it.
func (m Masquerade) Value() string { return fmt.Sprintf("%#x", uint32(1)<<m.Bit) }

// Marked matches packets that have the mark.
func (m Masquerade) Marked() string { return fmt.Sprintf("-m mark --mark %s/%s", m.Value(), m.Value()) }

// MarkRule sets the mark.
func (m Masquerade) MarkRule() string {
	return fmt.Sprintf("-j MARK --set-xmark %s/%s", m.Value(), m.Value())
}

// Rewrite returns the rules that rewrite the source of marked packets and remove the mark.
// The source port is never a NodePort (internal/DECISIONS.md, Source ports of masquerading).
func (m Masquerade) Rewrite(f model.Family) []string {
	const why = `-m comment --comment "kubernetes service traffic requiring SNAT"`
	lines := []string{
		fmt.Sprintf("-m mark ! --mark %s/%s -j RETURN", m.Value(), m.Value()),
		fmt.Sprintf("-j MARK --set-xmark %s/0x0", m.Value()),
	}
	if ports := m.SourcePorts(); ports != "" {
		for _, p := range []model.Protocol{model.TCP, model.UDP, model.SCTP} {
			lines = append(lines, "-p "+p.String()+" "+why+" -j MASQUERADE"+ports+m.Random(f))
		}
	}
	return slices.Concat(lines, []string{why + " -j MASQUERADE" + m.Random(f)})
}

// Random is the option, with a space before it, that has source ports picked at
// random, where the tools of the family know it.
func (m Masquerade) Random(f model.Family) string {
	if m.RandomFully == nil || m.RandomFully(f) {
		return " --random-fully"
	}
	return ""
}

// lowestSourcePort is the first port that the kernel takes for a masqueraded
// source port that was not privileged itself.
const lowestSourcePort = 1024

// SourcePorts is the option of MASQUERADE, with a space before it, that keeps it to
// the bigger of the two ranges beside the NodePorts; empty where there is no choice.
func (m Masquerade) SourcePorts() string {
	r := m.NodePorts
	if r == (PortRange{}) {
		return ""
	}
	below, above := int(r.First)-lowestSourcePort, 65535-int(r.Last)
	switch {
	case above > 0 && above >= below:
		return fmt.Sprintf(" --to-ports %d-65535", int(r.Last)+1)
	case below > 0:
		return fmt.Sprintf(" --to-ports %d-%d", lowestSourcePort, int(r.First)-1)
	}
	return "" // NodePorts are everywhere: there is nothing to choose from
}
