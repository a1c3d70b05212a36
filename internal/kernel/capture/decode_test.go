package capture

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/bpf"
)

// ipv4 and ipv6 build packets; options pads the IPv4 header by words.
func ipv4(protocol uint8, src, dst string, options, fragment int, payload []byte) []byte {
	b := make([]byte, ipv4Header+4*options, 128)
	b[0], b[9] = 4<<4|uint8(5+options), protocol
	binary.BigEndian.PutUint16(b[6:], uint16(fragment))
	copy(b[12:], netip.MustParseAddr(src).AsSlice())
	copy(b[16:], netip.MustParseAddr(dst).AsSlice())
	return append(b, payload...)
}

func ipv6(protocol uint8, src, dst string, payload []byte) []byte {
	b := make([]byte, ipv6Header, 128)
	b[0], b[6] = 6<<4, protocol
	copy(b[8:], netip.MustParseAddr(src).AsSlice())
	copy(b[24:], netip.MustParseAddr(dst).AsSlice())
	return append(b, payload...)
}

func udp(src, dst uint16) []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, src), dst), 8<<16)
}

func tcp(src, dst uint16, seq uint32, flags uint8) []byte {
	b := make([]byte, 20)
	copy(b, udp(src, dst))
	binary.BigEndian.PutUint32(b[4:], seq)
	b[12], b[13] = 5<<4, flags
	return b
}

func icmp(kind, code uint8, about []byte) []byte {
	return append([]byte{kind, code, 0, 0, 0, 0, 0, 0}, about...)
}

func addrPort(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }

func TestDecode(t *testing.T) {
	for name, tt := range map[string]struct {
		raw  []byte
		want Packet
	}{
		"UDP": {ipv4(UDP, "10.0.0.1", "10.96.0.10", 0, 0, udp(4001, 53)), Packet{Protocol: UDP, Src: addrPort("10.0.0.1:4001"), Dst: addrPort("10.96.0.10:53")}},
		"TCP behind options": {ipv4(TCP, "10.0.0.1", "10.96.0.10", 3, 0, tcp(4001, 80, 77, SYN|ACK)),
			Packet{Protocol: TCP, Src: addrPort("10.0.0.1:4001"), Dst: addrPort("10.96.0.10:80"), Seq: 77, Flags: SYN | ACK}},
		"SCTP over IPv6": {ipv6(SCTP, "fd00::1", "fd00:96::a", udp(4001, 38412)), Packet{Protocol: SCTP, Src: addrPort("[fd00::1]:4001"), Dst: addrPort("[fd00:96::a]:38412")}},
		"port unreachable": {ipv4(ICMP, "192.0.2.1", "10.0.0.1", 0, 0, icmp(3, 3, ipv4(UDP, "10.0.0.1", "10.96.0.10", 0, 0, udp(4001, 53)))),
			Packet{Protocol: ICMP, Src: addrPort("192.0.2.1:0"), Dst: addrPort("10.0.0.1:0"), Refusal: "port unreachable",
				Of: &Packet{Protocol: UDP, Src: addrPort("10.0.0.1:4001"), Dst: addrPort("10.96.0.10:53")}}},
		"prohibited, and of TCP eight bytes alone": {ipv6(ICMPv6, "fd00::2", "fd00::1", icmp(1, 1, ipv6(TCP, "fd00::1", "fd00:96::a", tcp(4001, 80, 7, SYN)[:8]))),
			Packet{Protocol: ICMPv6, Src: addrPort("[fd00::2]:0"), Dst: addrPort("[fd00::1]:0"), Refusal: "administratively prohibited",
				Of: &Packet{Protocol: TCP, Src: addrPort("[fd00::1]:4001"), Dst: addrPort("[fd00:96::a]:80")}}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := decode(tt.raw)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got, cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })); diff != "" {
				t.Errorf("packet (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRefusals(t *testing.T) {
	for want, list := range map[string][][3]uint8{
		"network unreachable": {{ICMP, 3, 0}, {ICMPv6, 1, 0}}, "host unreachable": {{ICMP, 3, 1}, {ICMPv6, 1, 3}},
		"port unreachable": {{ICMP, 3, 3}, {ICMPv6, 1, 4}}, "packet too big": {{ICMP, 3, 4}, {ICMPv6, 2, 0}},
		"administratively prohibited": {{ICMP, 3, 9}, {ICMP, 3, 10}, {ICMP, 3, 13}, {ICMPv6, 1, 1}},
		"time exceeded":               {{ICMP, 11, 0}, {ICMP, 11, 1}, {ICMPv6, 3, 0}}, "unreachable": {{ICMP, 3, 12}, {ICMPv6, 1, 6}},
	} {
		for _, m := range list {
			if got := refusal(m[0], m[1], m[2]); got != want {
				t.Errorf("%v: %q, want %q", m, got, want)
			}
		}
	}
}

// FuzzPacket: packets come from untrusted hosts.
func FuzzPacket(f *testing.F) {
	f.Add(ipv4(ICMP, "192.0.2.1", "10.0.0.1", 0, 0, icmp(3, 3, ipv4(UDP, "10.0.0.1", "10.96.0.10", 0, 0, udp(4001, 53)))))
	f.Add(ipv6(TCP, "fd00::1", "fd00:96::a", tcp(4001, 80, 7, SYN)))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := decode(b)
		if err == nil && (!p.Src.Addr().IsValid() || !p.Dst.Addr().IsValid()) {
			t.Errorf("%+v of % x has no addresses", p, b)
		}
	})
}

// The filter lets by what is of an endpoint, whichever end, and what refuses that.
func TestProgram(t *testing.T) {
	four := Filter{Protocol: UDP, Endpoints: []netip.AddrPort{addrPort("10.96.0.10:53"), addrPort("10.244.1.5:5353")}}
	six := Filter{Protocol: TCP, Endpoints: []netip.AddrPort{addrPort("[fd00:96::a]:80"), addrPort("[fd00:1::5]:8080")}}
	many := Filter{Protocol: TCP}
	for i := range MostEndpoints {
		many.Endpoints = append(many.Endpoints, netip.AddrPortFrom(netip.AddrFrom16([16]byte{0xfd, 15: byte(i)}), 8080))
	}
	for _, tt := range []struct {
		name   string
		filter Filter
		raw    []byte
		want   bool
	}{
		{"to the service", four, ipv4(UDP, "10.0.0.1", "10.96.0.10", 0, 0, udp(4001, 53)), true},
		{"behind options", four, ipv4(UDP, "10.0.0.1", "10.96.0.10", 2, 0, udp(4001, 53)), true},
		{"a first fragment", four, ipv4(UDP, "10.0.0.1", "10.96.0.10", 0, 0x2000, udp(4001, 53)), true},
		{"a later fragment", four, ipv4(UDP, "10.0.0.1", "10.96.0.10", 0, 0x0010, udp(4001, 53)), false},
		{"an answer of the backend", four, ipv4(UDP, "10.244.1.5", "10.0.0.1", 0, 0, udp(5353, 4001)), true},
		{"another port", four, ipv4(UDP, "10.0.0.1", "10.96.0.10", 0, 0, udp(4001, 54)), false},
		{"port of one, address of the other", four, ipv4(UDP, "10.0.0.1", "10.244.1.5", 0, 0, udp(4001, 53)), false},
		{"ports the wrong way round", four, ipv4(UDP, "10.0.0.1", "10.96.0.10", 0, 0, udp(53, 4001)), false},
		{"another protocol", four, ipv4(TCP, "10.0.0.1", "10.96.0.10", 0, 0, tcp(4001, 53, 1, SYN)), false},
		{"the other family", four, ipv6(UDP, "fd00::1", "fd00:96::a", udp(4001, 53)), false},
		{"a refusal", four, ipv4(ICMP, "192.0.2.1", "10.0.0.1", 0, 0, icmp(3, 3, ipv4(UDP, "10.0.0.1", "10.96.0.10", 0, 0, udp(4001, 53)))), true},
		{"a refusal of an answer", four, ipv4(ICMP, "10.0.0.1", "10.96.0.10", 0, 0, icmp(11, 0, ipv4(UDP, "10.244.1.5", "10.0.0.1", 0, 0, udp(5353, 4001)))), true},
		{"a refusal of something else", four, ipv4(ICMP, "192.0.2.1", "10.0.0.1", 0, 0, icmp(3, 3, ipv4(UDP, "10.0.0.1", "10.96.0.11", 0, 0, udp(4001, 53)))), false},
		{"a ping", four, ipv4(ICMP, "10.0.0.1", "10.96.0.10", 0, 0, icmp(8, 0, ipv4(UDP, "10.0.0.1", "10.96.0.10", 0, 0, udp(4001, 53)))), false},
		{"to the service, IPv6", six, ipv6(TCP, "fd00::1", "fd00:96::a", tcp(4001, 80, 1, SYN)), true},
		{"from the backend, IPv6", six, ipv6(TCP, "fd00:1::5", "fd00::1", tcp(8080, 4001, 1, SYN|ACK)), true},
		{"an address that differs at its end", six, ipv6(TCP, "fd00::1", "fd00:96::b", tcp(4001, 80, 1, SYN)), false},
		{"a refusal, IPv6", six, ipv6(ICMPv6, "fd00::2", "fd00::1", icmp(1, 4, ipv6(TCP, "fd00::1", "fd00:96::a", tcp(4001, 80, 1, SYN)))), true},
		{"a neighbour, IPv6", six, ipv6(ICMPv6, "fd00::2", "fd00::1", icmp(135, 0, ipv6(TCP, "fd00::1", "fd00:96::a", tcp(4001, 80, 1, SYN)))), false},
		{"IPv4 to an IPv6 filter", six, ipv4(TCP, "10.0.0.1", "10.96.0.10", 0, 0, tcp(4001, 80, 1, SYN)), false},
		{"the first of many", many, ipv6(TCP, "fd00::", "fd00:5::", tcp(8080, 1, 1, 0)), true},
		{"the last of many", many, ipv6(TCP, "fd01::", "fd00::5f", tcp(1, 8080, 1, 0)), true},
		{"none of many", many, ipv6(TCP, "fd01::", "fd00::60", tcp(1, 8080, 1, 0)), false},
		{"a refusal of the last of many", many, ipv6(ICMPv6, "fd01::", "fd01::", icmp(1, 4, ipv6(TCP, "fd01::", "fd00::5f", tcp(1, 8080, 1, SYN)))), true},
		{"nothing", four, nil, false},
		{"a header alone", four, ipv4(UDP, "10.0.0.1", "10.96.0.10", 0, 0, nil), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if err := tt.filter.Check(); err != nil {
				t.Fatal(err)
			}
			prog := program(tt.filter)
			if raw, err := bpf.Assemble(prog); err != nil || len(raw) > 4096 {
				t.Fatalf("%d instructions, %v", len(raw), err)
			}
			vm, err := bpf.NewVM(prog)
			if err != nil {
				t.Fatal(err)
			}
			n, err := vm.Run(tt.raw)
			if err != nil || (n > 0) != tt.want {
				t.Errorf("%d bytes are kept, %v; want it let by: %t", n, err, tt.want)
			}
		})
	}
}

func TestBadFilters(t *testing.T) {
	for name, f := range map[string]Filter{
		"no endpoints":       {Protocol: TCP},
		"no ports":           {Protocol: ICMP, Endpoints: []netip.AddrPort{addrPort("10.0.0.1:1")}},
		"both families":      {Protocol: TCP, Endpoints: []netip.AddrPort{addrPort("10.0.0.1:1"), addrPort("[fd00::1]:1")}},
		"IPv4 in IPv6":       {Protocol: TCP, Endpoints: []netip.AddrPort{addrPort("[::ffff:10.0.0.1]:1")}},
		"too many":           {Protocol: TCP, Endpoints: make([]netip.AddrPort, MostEndpoints+1)},
		"an endpoint of air": {Protocol: TCP, Endpoints: make([]netip.AddrPort, 1)},
	} {
		if f.Check() == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
