package chains

import (
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/sets"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/netfilter"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/link"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// directRules mark packets to detached addresses, and leave room for the header of tunnels to
// backends.
func (c Config) directRules(w ruleWriter) {
	w.chain("mangle", chainDirect, netfilter.If(w.commented(sets.DirectIPs, dst)).Then(c.setDetachMark()))
	w.chain("mangle", chainDirectMSS, segments(w)...)
}

// setDetachMark gives a packet the mark by which detached addresses are local.
func (c Config) setDetachMark() netfilter.SetMark {
	mark := link.DetachMark(c.Masquerade.Bit)
	return netfilter.SetMark{Value: mark, Mask: mark}
}

// A tunnel puts another IP header in front of packets to the backend. The client makes them as large
// as the SYN,ACK of the backend allows. That SYN,ACK does not pass the director, so it is lowered
// where it leaves its node. iptables cannot subtract, so there is a rule for each range of sizes.
var (
	// headers are the sizes of the headers of IP and TCP together, without options; tunnelHeader is
	// the largest size that a tunnel adds.
	headers      = map[model.Family]int{model.IPv4: 40, model.IPv6: 60}
	tunnelHeader = map[model.Family]int{model.IPv4: 20 + gueHeader, model.IPv6: 40 + gueHeader}
	// commonMTUs are those of pods in networks with and without tunnels of their own. An MTU
	// between two of them counts as the lesser.
	commonMTUs = []int{1280, 1360, 1400, 1420, 1440, 1450, 1460, 1480, 1500, 8900, 8950, 9000}
)

const (
	largestSegment = 65535
	// gueHeader are the headers of UDP and GUE. Few tunnels have them, but rules cannot tell tunnels apart.
	gueHeader = 8 + 4
)

// segments lower the segment size that a SYN,ACK offers. The least size of a range counts. The
// ranges rise, so no rule lowers a size that another has lowered.
func segments(w ruleWriter) []netfilter.Rule {
	synAck := netfilter.TCPFlags{Of: netfilter.SYN | netfilter.ACK, Set: netfilter.SYN | netfilter.ACK}
	list := []netfilter.Rule{
		netfilter.If(netfilter.Not{Match: netfilter.TCP}).Then(netfilter.Return),
		netfilter.If(w.notIn(sets.DirectIPs, src)).Then(netfilter.Return),
	}
	for i, mtu := range commonMTUs {
		from, to := mtu-headers[w.family], largestSegment
		if i+1 < len(commonMTUs) {
			to = commonMTUs[i+1] - headers[w.family] - 1
		}
		size := netfilter.SegmentSize{From: uint16(from), To: uint16(to)}
		list = append(list, netfilter.If(netfilter.TCP, synAck, size).Then(netfilter.SetSegmentSize(from-tunnelHeader[w.family])))
	}
	return list
}

// isDirectChain reports whether a chain is there for backends that answer themselves.
func isDirectChain(k netfilter.ChainKey) bool {
	return k.Table == "mangle" && (k.Name == chainDirect || k.Name == chainDirectMSS)
}
