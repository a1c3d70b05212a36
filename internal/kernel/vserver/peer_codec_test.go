package vserver_test

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/internal/netkey"
)

func datagram(kind, flags uint16, seq, port uint32, body []byte) []byte {
	b := binary.NativeEndian.AppendUint32(nil, uint32(16+len(body)))
	b = binary.NativeEndian.AppendUint16(b, kind)
	b = binary.NativeEndian.AppendUint16(b, flags)
	b = binary.NativeEndian.AppendUint32(b, seq)
	b = binary.NativeEndian.AppendUint32(b, port)
	return append(b, body...)
}

func attr(kind uint16, value []byte) []byte {
	b := binary.NativeEndian.AppendUint16(nil, uint16(4+len(value)))
	b = binary.NativeEndian.AppendUint16(b, kind)
	b = append(b, value...)
	return append(b, make([]byte, -len(b)&3)...)
}

func u16Attr(kind, v uint16) []byte { return attr(kind, binary.NativeEndian.AppendUint16(nil, v)) }
func u32Attr(kind uint16, v uint32) []byte {
	return attr(kind, binary.NativeEndian.AppendUint32(nil, v))
}
func u64Attr(kind uint16, v uint64) []byte {
	return attr(kind, binary.NativeEndian.AppendUint64(nil, v))
}
func portAttr(kind, v uint16) []byte         { return attr(kind, binary.BigEndian.AppendUint16(nil, v)) }
func cAttr(kind uint16, v string) []byte     { return attr(kind, append([]byte(v), 0)) }
func nestAttr(k uint16, in ...[]byte) []byte { return attr(k|0x8000, slices.Concat(in...)) }

func addrAttr(kind uint16, a netip.Addr) []byte {
	raw := make([]byte, 16)
	copy(raw, a.AsSlice())
	return attr(kind, raw)
}

func familyOf(a netip.Addr) uint16 {
	if a.Is4() {
		return 2
	}
	return 10
}

func attrs(b []byte) map[uint16][]byte {
	out := map[uint16][]byte{}
	for len(b) >= 4 {
		length := int(binary.NativeEndian.Uint16(b))
		out[binary.NativeEndian.Uint16(b[2:])] = b[4:length]
		b = b[min((length+3)&^3, len(b)):]
	}
	return out
}

func readAddr(raw, family []byte) netip.Addr {
	size := 16
	if binary.NativeEndian.Uint16(family) == 2 {
		size = 4
	}
	a, _ := netip.AddrFromSlice(raw[:size])
	return a
}

func readServerKey(f map[uint16][]byte) vserver.ServerKey {
	return vserver.ServerKey{
		Addr: readAddr(f[3], f[1]), Port: binary.BigEndian.Uint16(f[4]), Protocol: netkey.Protocol(binary.NativeEndian.Uint16(f[2])),
	}
}

func readServerValue(k vserver.ServerKey, f map[uint16][]byte) vserver.Server {
	s := vserver.Server{
		Scheduler: string(f[6][:len(f[6])-1]),
		Flags:     binary.NativeEndian.Uint32(f[7]) & binary.NativeEndian.Uint32(f[7][4:]),
		Timeout:   binary.NativeEndian.Uint32(f[8]),
	}
	if k.Addr.Is4() {
		for mask := binary.BigEndian.Uint32(f[9]); mask&1 == 0 && s.HostBits < 32; mask >>= 1 {
			s.HostBits++
		}
	} else {
		s.HostBits = uint8(128 - binary.NativeEndian.Uint32(f[9]))
	}
	return s
}

func readDestination(f map[uint16][]byte) vserver.Destination {
	d := vserver.Destination{
		Forward: uint8(binary.NativeEndian.Uint32(f[3])), Weight: uint16(binary.NativeEndian.Uint32(f[4])),
		Upper: binary.NativeEndian.Uint32(f[5]), Lower: binary.NativeEndian.Uint32(f[6]),
	}
	if len(f[13]) > 0 {
		d.Tunnel, d.TunnelPort, d.TunnelFlags = f[13][0], binary.BigEndian.Uint16(f[14]), binary.NativeEndian.Uint16(f[15])
	}
	return d
}

// serverRow is the body of an answer with one server, HASHED and statistics
// included.
func serverRow(k vserver.ServerKey, s vserver.Server, carried vserver.Traffic) []byte {
	flags := binary.NativeEndian.AppendUint32(nil, s.Flags|0x2)
	flags = binary.NativeEndian.AppendUint32(flags, ^uint32(0))
	mask := binary.BigEndian.AppendUint32(nil, ^uint32(0)<<s.HostBits)
	if !k.Addr.Is4() {
		mask = binary.NativeEndian.AppendUint32(nil, 128-uint32(s.HostBits))
	}
	return append([]byte{1, 1, 0, 0}, nestAttr(1,
		u16Attr(1, familyOf(k.Addr)), u16Attr(2, uint16(k.Protocol)), addrAttr(3, k.Addr), portAttr(4, k.Port),
		cAttr(6, s.Scheduler), attr(7, flags), u32Attr(8, s.Timeout), attr(9, mask),
		narrowStats(carried), wideStats(carried))...)
}

func destinationRow(k vserver.DestinationKey, d vserver.Destination, c vserver.Connections, carried vserver.Traffic) []byte {
	return nestAttr(2,
		addrAttr(1, k.Addr), portAttr(2, k.Port), u16Attr(11, familyOf(k.Addr)), u32Attr(3, uint32(d.Forward)),
		u32Attr(4, uint32(d.Weight)), u32Attr(5, d.Upper), u32Attr(6, d.Lower),
		u32Attr(7, c.Active), u32Attr(8, c.Inactive),
		attr(13, []byte{d.Tunnel}), portAttr(14, d.TunnelPort), u16Attr(15, d.TunnelFlags),
		narrowStats(carried), wideStats(carried))
}

// narrowStats is IPVS_SVC_ATTR_STATS, which wraps; wideStats is the one that does not. The
// rates behind the counters are of no use here.
func narrowStats(t vserver.Traffic) []byte {
	return nestAttr(10, u32Attr(1, uint32(t.Connections)), u32Attr(2, uint32(t.PacketsIn)), u32Attr(3, uint32(t.PacketsOut)),
		u64Attr(4, t.BytesIn), u64Attr(5, t.BytesOut), u32Attr(6, 9), u32Attr(10, 9))
}

func wideStats(t vserver.Traffic) []byte {
	return nestAttr(12, u64Attr(1, t.Connections), u64Attr(2, t.PacketsIn), u64Attr(3, t.PacketsOut),
		u64Attr(4, t.BytesIn), u64Attr(5, t.BytesOut), u64Attr(6, 9), u64Attr(10, 9))
}
