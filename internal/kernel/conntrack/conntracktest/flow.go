package conntracktest

import (
	"cmp"
	"fmt"
	"iter"
	"net/netip"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/conntrack"
	"github.com/kube-ipvs/kube-ipvs/internal/netkey"
)

// Flow is one entry of the table. Flows are comparable.
type Flow struct {
	Protocol         netkey.Protocol
	Client, Dialled  netip.AddrPort // the original direction
	Answers, Towards netip.AddrPort // the other direction: the answering peer, and its receiver
	Zone             uint16
	Replied          bool // the client had an answer
	Reset            bool // the connection was reset
}

// To returns a flow from a client to a key, answered from the address answers; it is masqueraded if
// the replies go to another address than the client's.
func To(key conntrack.Key, client, answers netip.AddrPort) Flow {
	return Flow{
		Protocol: key.Protocol, Client: client, Dialled: netip.AddrPortFrom(key.Addr, key.Port),
		Answers: answers, Towards: client,
	}
}

// Key is what the client of the flow dialled.
func (f Flow) Key() conntrack.Key {
	return conntrack.Key{Addr: f.Dialled.Addr(), Port: f.Dialled.Port(), Protocol: f.Protocol}
}

// Compare orders by family, original direction, protocol and zone.
func (f Flow) Compare(other Flow) int {
	return cmp.Or(
		f.Dialled.Compare(other.Dialled), f.Client.Compare(other.Client),
		cmp.Compare(f.Protocol, other.Protocol), cmp.Compare(f.Zone, other.Zone), f.Answers.Compare(other.Answers),
	)
}

// String prints the flow as conntrack -L does, without what changes by itself: the
// time that is left, and the flags.
func (f Flow) String() string {
	zone := ""
	if f.Zone != 0 {
		zone = fmt.Sprintf(" zone=%d", f.Zone)
	}
	return fmt.Sprintf("%-8s %d %s %s mark=0%s", protocolName(f.Protocol), f.Protocol,
		direction(f.Client, f.Dialled), direction(f.Answers, f.Towards), zone)
}

func direction(from, to netip.AddrPort) string {
	return fmt.Sprintf("src=%s dst=%s sport=%d dport=%d", from.Addr(), to.Addr(), from.Port(), to.Port())
}

func protocolName(p netkey.Protocol) string {
	switch p {
	case netkey.TCP, netkey.UDP, netkey.SCTP:
		return p.String()
	}
	return "unknown"
}

// Foreign are n unrelated flows of no Service: UDP, to 64,000 ports of addresses in 198.18.0.0/15,
// or in fd18::/96 if family is 6.
func Foreign(family, n int) iter.Seq[Flow] {
	return func(yield func(Flow) bool) {
		for i := range n {
			server := netip.AddrFrom4([4]byte{198, 18 + byte(i>>24&1), byte(i >> 16), byte(i >> 8)})
			client := netip.AddrFrom4([4]byte{198, 51, 100, byte(i)})
			if family == 6 {
				server, client = netip.AddrFrom16(widen(server)), netip.AddrFrom16(widen(client))
			}
			from, to := netip.AddrPortFrom(client, uint16(1024+i%64000)), netip.AddrPortFrom(server, uint16(1024+i/7%64000))
			if !yield(Flow{Protocol: conntrack.ProtocolUDP, Client: from, Dialled: to, Answers: to, Towards: from}) {
				return
			}
		}
	}
}

// widen puts an IPv4 address into fd18::/96.
func widen(a netip.Addr) [16]byte {
	out := [16]byte{0: 0xfd, 1: 0x18}
	raw := a.As4()
	copy(out[12:], raw[:])
	return out
}
