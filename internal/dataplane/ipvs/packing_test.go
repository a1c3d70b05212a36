package ipvs

import (
	"net/netip"
	"testing"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/sets"
	"github.com/kube-ipvs/kube-ipvs/internal/delta"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/netkey"
	"github.com/kube-ipvs/kube-ipvs/ipset"
)

// Two keys must never become one, and what comes out is what went in.
func TestPackingLosesNothing(t *testing.T) {
	four, other, six := netip.MustParseAddr("10.96.0.1"), netip.MustParseAddr("0.0.0.0"), netip.MustParseAddr("fd00::1")
	var destinations []vserver.DestinationKey
	var members []sets.Key
	for _, a := range []netip.Addr{four, other, six} {
		for _, port := range []uint16{0, 80, 443} {
			for _, protocol := range []netkey.Protocol{vserver.ProtocolTCP, vserver.ProtocolUDP} {
				for _, to := range []netip.Addr{four, other, six} {
					server := vserver.ServerKey{Addr: a, Port: port, Protocol: protocol}
					destinations = append(destinations, vserver.DestinationKey{Server: server, Addr: to, Port: port + 1},
						vserver.DestinationKey{Server: server, Addr: to, Port: port})
					members = append(members, sets.Key{sets.ClusterIP, ipset.IPPortIP(a, uint8(protocol), port, to)}, sets.Key{sets.LoopBack, ipset.IPPortIP(a, uint8(protocol), port, to)},
						sets.Key{sets.ClusterIP, ipset.IPPortNet(a, uint8(protocol), port, netip.PrefixFrom(to, 8))})
				}
				members = append(members, sets.Key{sets.ClusterIP, ipset.IPPort(a, uint8(protocol), port)})
			}
		}
		members = append(members, sets.Key{sets.ClusterIP, ipset.IP(a)})
	}
	members = append(members, sets.Key{"somebody's", ipset.IP(four)}, sets.Key{sets.Name(model.IPv6, sets.ClusterIP), ipset.IP(four)},
		sets.Key{sets.ClusterIP, ipset.Port(80)}, sets.Key{sets.ClusterIP, ipset.Entry{Addr: four, NoMatch: true}})
	if n := checkPacking(t, packedDestinations, destinations); n == 0 || n == len(destinations) {
		t.Errorf("%d of %d destinations are packed, want those of IPv4", n, len(destinations))
	}
	if n := checkPacking(t, packedMembers, members); n == 0 || n == len(members) {
		t.Errorf("%d of %d entries are packed, want those of IPv4", n, len(members))
	}
}

// checkPacking returns how many of the keys have a small form.
func checkPacking[K comparable](t *testing.T, p delta.Packing[K], keys []K) (packed int) {
	t.Helper()
	seen := map[delta.Small]K{}
	for _, k := range keys {
		small, ok := p.Pack(k)
		if !ok {
			continue
		}
		packed++
		if got := p.Unpack(small); got != k {
			t.Errorf("%+v came back as %+v", k, got)
		}
		if twin, had := seen[small]; had && twin != k {
			t.Errorf("%+v and %+v are packed alike", k, twin)
		}
		seen[small] = k
	}
	return packed
}
