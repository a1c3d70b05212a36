package ipvs

import (
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/sets"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/netfilter"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/link"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// directRules mark what is for detached addresses, and see to it that tunnels to backends
// have room for their header.
func (c Config) directRules(w ruleWriter) {
	w.chain("mangle", chainDirect, netfilter.If(w.commented(sets.DirectIPs, dst)).Then(c.setDetachMark()))
	w.chain("mangle", chainDirectMSS, segments(w)...)
}

// setDetachMark gives a packet the mark by which detached addresses are local.
func (c Config) setDetachMark() netfilter.SetMark {
	mark := link.DetachMark(c.Masquerade.Bit)
	return netfilter.SetMark{Value: mark, Mask: mark}
}

// A tunnel puts another IP header in front of packets to the backend. The client makes them
// as large as the backend said in its SYN,ACK, which does not come by the director: so it is
// made to say less where it leaves its node. There is no rule to subtract, but by ranges.
var (
	// headers are those of IP and TCP together, without options; tunnelHeader is what a tunnel adds at most.
	headers      = map[model.Family]int{model.IPv4: 40, model.IPv6: 60}
	tunnelHeader = map[model.Family]int{model.IPv4: 20 + gueHeader, model.IPv6: 40 + gueHeader}
	// commonMTUs are those of pods in networks with and without tunnels of their own; one
	// between two of them loses what it has beyond the lesser.
	commonMTUs = []int{1280, 1360, 1400, 1420, 1440, 1450, 1460, 1480, 1500, 8900, 8950, 9000}
)

const (
	largestSegment = 65535
	// gueHeader are those of UDP and GUE, which few tunnels add: 12 bytes less for all are less than to tell them apart.
	gueHeader = 8 + 4
)

// segments lower the segment size that a SYN,ACK offers. Of a range the least counts; the
// ranges rise, so that what one has lowered is never lowered by another.
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

// extras are the chains and sets of a family that some address needs now.
func (m *Mode) extras(f model.Family) extras {
	direct, capture := m.addresses.Needs(f)
	return extras{direct, capture}
}

// hasSet reports whether a set is wanted: those that are always there are.
func (e extras) hasSet(name string) bool {
	switch name {
	case sets.DirectIPs:
		return e.direct
	case sets.Capture, sets.CaptureIPs:
		return e.capture
	}
	return true
}

// unwantExtras takes the rules of a family away that no address needs.
func (m *Mode) unwantExtras(f model.Family, wanted extras) {
	for _, j := range jumps {
		if k := netfilter.Key(f, j.Table, j.Target); !wanted.has(k) {
			m.jumps.DeleteDesired(j.In(f))
			m.chains.DeleteDesired(k)
		}
	}
}

// isDirectChain tells whether a chain is there for backends that answer themselves.
func isDirectChain(k netfilter.ChainKey) bool {
	return k.Table == "mangle" && (k.Name == chainDirect || k.Name == chainDirectMSS)
}
