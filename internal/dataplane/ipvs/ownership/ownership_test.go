package ownership_test

import (
	"net/netip"
	"testing"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/ownership"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/ipset"
)

func TestOwns(t *testing.T) {
	addr := netip.MustParseAddr
	at := func(a string, port uint16) vserver.ServerKey {
		return vserver.ServerKey{Addr: addr(a), Port: port, Protocol: vserver.ProtocolTCP}
	}
	m := &ownership.Snapshot{
		Bound: map[netip.Addr]struct{}{addr("10.96.0.1"): {}}, Links: map[netip.Addr]string{addr("192.168.0.1"): "eth0"},
		Excluded: []netip.Prefix{netip.MustParsePrefix("10.96.9.0/24")},
	}
	m.Add("KUBE-IPVS-IPS", []ipset.Entry{ipset.IP(addr("10.96.0.2")), ipset.IP(addr("10.96.9.9"))})
	m.Add("KUBE-6-CLUSTER-IP", []ipset.Entry{ipset.IPPort(addr("fd00::1"), ipset.TCP, 80)})
	m.Add("KUBE-NODE-PORT-TCP", []ipset.Entry{ipset.Port(30080)})
	m.Add("KUBE-NODE-PORT-IPS", []ipset.Entry{ipset.IP(addr("192.168.0.2"))})
	for _, ours := range []vserver.ServerKey{
		at("10.96.0.1", 1), at("10.96.0.2", 2), at("fd00::1", 80), at("192.168.0.2", 30080),
	} {
		if !m.Owns(ours) {
			t.Errorf("%s is not ours", ours)
		}
	}
	for _, foreign := range []vserver.ServerKey{
		at("10.96.0.3", 80), at("fd00::1", 81), at("192.168.0.1", 30081), at("192.168.0.1", 30080), at("192.168.0.3", 30080), at("10.96.9.9", 80),
	} {
		if m.Owns(foreign) {
			t.Errorf("%s is ours", foreign)
		}
	}
}

// TestOwnsServersOfKubeProxy: it has no set of the addresses on which NodePorts answer, so a link of this machine has to do.
func TestOwnsServersOfKubeProxy(t *testing.T) {
	addr := netip.MustParseAddr
	m := &ownership.Snapshot{Links: map[netip.Addr]string{addr("192.168.0.1"): "eth0"}}
	m.Add("KUBE-NODE-PORT-TCP", []ipset.Entry{ipset.Port(30080)})
	for a, want := range map[string]bool{"192.168.0.1": true, "192.168.0.2": false} {
		if got := m.Owns(vserver.ServerKey{Addr: addr(a), Port: 30080, Protocol: vserver.ProtocolTCP}); got != want {
			t.Errorf("%s: ours %t, want %t", a, got, want)
		}
	}
}
