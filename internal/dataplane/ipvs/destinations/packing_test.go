package destinations

import (
	"net/netip"
	"testing"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/internal/netkey"
	"github.com/kube-ipvs/kube-ipvs/internal/testkit/packed"
)

// Two keys must never become one, and a packed key must come back as it was.
func TestPackingLosesNothing(t *testing.T) {
	addrs := []netip.Addr{netip.MustParseAddr("10.96.0.1"), netip.MustParseAddr("0.0.0.0"), netip.MustParseAddr("fd00::1")}
	var keys []vserver.DestinationKey
	for _, a := range addrs {
		for _, port := range []uint16{0, 80, 443} {
			for _, protocol := range []netkey.Protocol{netkey.TCP, netkey.UDP} {
				for _, to := range addrs {
					server := vserver.ServerKey{Addr: a, Port: port, Protocol: protocol}
					keys = append(keys, Key(server, netip.AddrPortFrom(to, port)), Key(server, netip.AddrPortFrom(to, port+1)))
				}
			}
		}
	}
	if n := packed.Check(t, packedDestinations, keys); n == 0 || n == len(keys) {
		t.Errorf("%d of %d destinations are packed, want those of IPv4", n, len(keys))
	}
}
