package main

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
)

// someServers differ in everything a server and a destination can differ in.
func someServers() []serverRow {
	return []serverRow{
		{
			Key:    vserver.ServerKey{Addr: netip.MustParseAddr("10.96.0.10"), Port: 53, Protocol: vserver.ProtocolUDP},
			Server: vserver.Server{Scheduler: "rr", Flags: vserver.FlagOnePacket},
			Destinations: []destinationRow{
				{netip.MustParseAddrPort("10.244.0.2:5353"), vserver.Destination{Weight: 1}},
				{netip.MustParseAddrPort("10.244.0.3:5353"), vserver.Destination{Weight: 0, Forward: vserver.ForwardTunnel, Upper: 9, Lower: 4}},
			},
		},
		{
			Key:    vserver.ServerKey{Addr: netip.MustParseAddr("fd00:96::1"), Port: 443, Protocol: vserver.ProtocolTCP},
			Server: vserver.Server{Scheduler: "mh", Flags: vserver.FlagPersistent | vserver.FlagSched2, Timeout: 10800, HostBits: 64},
			Destinations: []destinationRow{
				{netip.MustParseAddrPort("[fd00:244::2]:6443"), vserver.Destination{Weight: 65535}},
			},
		},
		{
			Key:    vserver.ServerKey{Addr: netip.MustParseAddr("10.96.0.11"), Port: 80, Protocol: vserver.ProtocolSCTP},
			Server: vserver.Server{Scheduler: "wlc", Flags: vserver.FlagPersistent, Timeout: 60, HostBits: 8},
		},
	}
}

// message is one of a parcel as a receiver sees it.
type message struct {
	kind, flags uint16
	seq         uint32
	body        []byte
}

// unpack cuts sends into messages by their lengths alone.
func unpack(t *testing.T, sends []send) [][]message {
	t.Helper()
	var all [][]message
	for _, s := range sends {
		var these []message
		for b := s.bytes; len(b) > 0; {
			n := int(binary.NativeEndian.Uint32(b))
			if n < headerLen || n > len(b) || n%4 != 0 {
				t.Fatalf("a message of length %d in %d bytes", n, len(b))
			}
			these = append(these, message{binary.NativeEndian.Uint16(b[4:]), binary.NativeEndian.Uint16(b[6:]), binary.NativeEndian.Uint32(b[8:]), b[headerLen:n]})
			b = b[n:]
		}
		all = append(all, these)
	}
	return all
}

// attributes reads attributes as the kernel does: by length, aligned to four bytes, without the two flags.
func attributes(t *testing.T, b []byte) map[uint16][]byte {
	t.Helper()
	all := map[uint16][]byte{}
	for len(b) > 0 {
		n := int(binary.NativeEndian.Uint16(b))
		if n < 4 || n > len(b) {
			t.Fatalf("an attribute of length %d in %d bytes", n, len(b))
		}
		all[binary.NativeEndian.Uint16(b[2:])&0x3fff] = b[4:n]
		b = b[(n+3)&^3:]
	}
	return all
}

// decodeServers reads what IPVS would read, by include/uapi/linux/ip_vs.h.
func decodeServers(t *testing.T, messages []message) []serverRow {
	t.Helper()
	var all []serverRow
	for _, m := range messages {
		outer := attributes(t, m.body[4:])
		f := attributes(t, outer[1])
		addr := func(raw []byte, family uint16) netip.Addr {
			a, _ := netip.AddrFromSlice(raw[:map[uint16]int{2: 4, 10: 16}[family]])
			return a
		}
		u16, u32, port := binary.NativeEndian.Uint16, binary.NativeEndian.Uint32, binary.BigEndian.Uint16
		key := vserver.ServerKey{Addr: addr(f[3], u16(f[1])), Port: port(f[4]), Protocol: uint8(u16(f[2]))}
		switch m.body[0] {
		case 1:
			s := vserver.Server{Scheduler: string(f[6][:len(f[6])-1]), Flags: u32(f[7]) & u32(f[7][4:]), Timeout: u32(f[8])}
			if key.Addr.Is4() {
				for mask := binary.BigEndian.Uint32(f[9]); mask&1 == 0; mask >>= 1 {
					s.HostBits++
				}
			} else {
				s.HostBits = uint8(128 - u32(f[9]))
			}
			all = append(all, serverRow{Key: key, Server: s})
		case 5:
			of := &all[len(all)-1]
			if of.Key != key {
				t.Errorf("a destination of %s follows %s", key, of.Key)
			}
			d := attributes(t, outer[2])
			of.Destinations = append(of.Destinations, destinationRow{
				netip.AddrPortFrom(addr(d[1], u16(d[11])), port(d[2])),
				vserver.Destination{Forward: uint8(u32(d[3])), Weight: uint16(u32(d[4])), Upper: u32(d[5]), Lower: u32(d[6])},
			})
		default:
			t.Errorf("command %d", m.body[0])
		}
	}
	return all
}

func TestServersMeanWhatTheyMeant(t *testing.T) {
	want := someServers()
	sends := unpack(t, packServers(28, want).cut(100))
	if len(sends) != 1 {
		t.Fatalf("%d sends, want 1", len(sends))
	}
	got := decodeServers(t, sends[0])
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b }), cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })); diff != "" {
		t.Errorf("servers (-want +got):\n%s", diff)
	}
	for _, m := range sends[0] {
		if m.kind != 28 {
			t.Errorf("a message to family %d", m.kind)
		}
	}
}

func TestOnlyTheLastOfASendIsAcknowledged(t *testing.T) {
	for _, tt := range []struct {
		services, perSend int
		want              []int // messages of each send
	}{
		{1, 1, []int{1}},
		{6, 4, []int{4, 2}},
		{8, 4, []int{4, 4}},
		{3, 512, []int{3}},
		{0, 512, nil},
		{3000, 1 << 20, []int{1260, 1260, 480}}, // 104 bytes each: the bytes bound it
	} {
		t.Run(fmt.Sprintf("%d by %d", tt.services, tt.perSend), func(t *testing.T) {
			p := packServers(28, makeRows(tt.services, 0).Servers)
			sends := p.cut(tt.perSend)
			var got []int
			seq := uint32(0)
			for i, these := range unpack(t, sends) {
				got = append(got, len(these))
				for j, m := range these {
					seq++
					last := j+1 == len(these)
					if m.seq != seq || (m.flags&flagAck != 0) != last || m.flags&flagRequest == 0 {
						t.Fatalf("send %d, message %d of %d: number %d, flags %#x", i, j+1, len(these), m.seq, m.flags)
					}
				}
				if sends[i].last != seq || sends[i].messages != len(these) || len(sends[i].bytes) > maxSend {
					t.Errorf("send %d: %d messages, the last is %d, %d bytes", i, sends[i].messages, sends[i].last, len(sends[i].bytes))
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("messages of each send (-want +got):\n%s", diff)
			}
		})
	}
}

// Entries go many to a message, and an attribute is shorter than 64 KiB whatever they are.
func TestEntriesShareMessages(t *testing.T) {
	sets := someSets()
	sets = sets[:len(sets)-1] // the last is empty
	for i := range sets {
		for len(sets[i].Entries) < 2*maxEntries+1 {
			sets[i].Entries = append(sets[i].Entries, sets[i].Entries...)
		}
		sets[i].Entries = sets[i].Entries[:2*maxEntries+1]
	}
	p := packSets(sets, make([]uint8, len(sets)))
	if want := len(sets) * (1 + 3); len(p.starts) != want {
		t.Errorf("%d messages, want %d", len(p.starts), want)
	}
	for _, these := range unpack(t, p.cut(1)) {
		m := these[0]
		f := attributes(t, m.body[4:])
		if m.kind == 6<<8|9 && len(f[8]) == 0 || m.kind == 6<<8|2 && len(f[7]) == 0 {
			t.Errorf("message %d has no content", m.seq)
		}
		if len(m.body) > 60<<10 {
			t.Errorf("message %d has %d bytes", m.seq, len(m.body))
		}
	}
}

func TestAddressesAreOfTheLink(t *testing.T) {
	addrs := []netip.Addr{netip.MustParseAddr("10.96.0.1"), netip.MustParseAddr("fd00:96::1")}
	for i, m := range unpack(t, packAddresses(7, addrs).cut(512))[0] {
		f := attributes(t, m.body[8:])
		for _, kind := range []uint16{1, 2} {
			if got, _ := netip.AddrFromSlice(f[kind]); got != addrs[i] {
				t.Errorf("attribute %d is %s, want %s", kind, got, addrs[i])
			}
		}
		if m.kind != 20 || int(m.body[1]) != addrs[i].BitLen() || binary.NativeEndian.Uint32(m.body[4:]) != 7 || (f[8] != nil) != addrs[i].Is6() {
			t.Errorf("%s: kind %d, head %v, flags %v", addrs[i], m.kind, m.body[:8], f[8])
		}
	}
}
