package ipsettest

import (
	"net/netip"

	"github.com/kube-ipvs/kube-ipvs/ipset"
)

// shape is a set of one type and family with entries for it and one that does
// not belong.
type shape struct {
	set     ipset.Set
	entries []string
	strange ipset.Entry
}

// shapes covers every type in both families.
func shapes() []shape {
	v4, v6 := ipset.IPv4, ipset.IPv6
	alien4, alien6 := netip.MustParseAddr("2001:db8::99"), netip.MustParseAddr("192.0.2.99")
	return []shape{
		{hash("ip4", ipset.HashIP, v4), []string{"10.96.0.1", "255.255.255.255"}, ipset.IP(alien4)},
		{hash("ip6", ipset.HashIP, v6), []string{"2001:db8::1", "fd00::"}, ipset.IP(alien6)},
		{hash("port4", ipset.HashIPPort, v4),
			[]string{"10.96.0.1,tcp:80", "10.96.0.1,udp:53", "10.96.0.1,sctp:38412", "10.96.0.1,udplite:0", "10.96.0.1,tcp:65535"},
			ipset.IPPort(alien4, ipset.TCP, 80)},
		{hash("port6", ipset.HashIPPort, v6),
			[]string{"2001:db8::1,tcp:80", "::1,udp:53"}, ipset.IPPort(alien6, ipset.TCP, 80)},
		{hash("portip4", ipset.HashIPPortIP, v4),
			[]string{"10.244.0.5,tcp:8080,10.244.0.5", "10.244.0.5,tcp:8080,10.244.0.6"},
			ipset.IPPortIP(alien4, ipset.TCP, 80, alien4)},
		{hash("portip6", ipset.HashIPPortIP, v6),
			[]string{"fd00::5,tcp:8080,fd00::5"}, ipset.IPPortIP(alien6, ipset.TCP, 80, alien6)},
		{hash("portnet4", ipset.HashIPPortNet, v4),
			[]string{"203.0.113.7,tcp:443,198.51.100.0/24", "203.0.113.7,tcp:443,10.0.0.1", "203.0.113.7,udp:443,128.0.0.0/1"},
			ipset.IPPortNet(alien4, ipset.TCP, 80, netip.PrefixFrom(alien4, 64))},
		{hash("portnet6", ipset.HashIPPortNet, v6),
			[]string{"2001:db8::7,tcp:443,fd00::/8", "2001:db8::7,tcp:443,fd00::1", "2001:db8::7,tcp:443,8000::/1"},
			ipset.IPPortNet(alien6, ipset.TCP, 80, netip.PrefixFrom(alien6, 24))},
		{ipset.Set{Name: "ports", Type: ipset.BitmapPort}, []string{"0", "80", "30080", "65535"}, ipset.IP(alien4)},
	}
}

func hash(name string, t ipset.Type, f ipset.Family) ipset.Set {
	return ipset.Set{Name: name, Type: t, Family: f}
}
