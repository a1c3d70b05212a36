package sets

import (
	"net/netip"
	"testing"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/testkit/packed"
	"github.com/kube-ipvs/kube-ipvs/ipset"
)

// Two keys must never become one, and a packed key must come back as it was.
func TestPackingLosesNothing(t *testing.T) {
	four, other, six := netip.MustParseAddr("10.96.0.1"), netip.MustParseAddr("0.0.0.0"), netip.MustParseAddr("fd00::1")
	keys := []Key{
		{"foreign", ipset.IP(four)}, {Name(model.IPv6, ClusterIP), ipset.IP(four)},
		{ClusterIP, ipset.Port(80)}, {ClusterIP, ipset.Entry{Addr: four, NoMatch: true}},
	}
	for _, a := range []netip.Addr{four, other, six} {
		keys = append(keys, Key{ClusterIP, ipset.IP(a)})
		for _, port := range []uint16{0, 80, 443} {
			for _, protocol := range []uint8{ipset.TCP, ipset.UDP} {
				keys = append(keys, Key{ClusterIP, ipset.IPPort(a, protocol, port)})
				for _, to := range []netip.Addr{four, other, six} {
					keys = append(keys, Key{ClusterIP, ipset.IPPortIP(a, protocol, port, to)}, Key{LoopBack, ipset.IPPortIP(a, protocol, port, to)},
						Key{ClusterIP, ipset.IPPortNet(a, protocol, port, netip.PrefixFrom(to, 8))})
				}
			}
		}
	}
	if n := packed.Check(t, packedMembers, keys); n == 0 || n == len(keys) {
		t.Errorf("%d of %d entries are packed, want those of IPv4", n, len(keys))
	}
}
