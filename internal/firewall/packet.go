package firewall

import (
	"encoding/binary"
	"net/netip"
)

// State is the state of a connection, as connection tracking has it.
type State uint8

// The states of packets that are judged.
const (
	New   State = iota + 1 // the first packet of a connection
	Reply                  // a packet of the other direction
)

// Packet has the known facts about a packet in a hook. Zero fields are unknown, except IPv6.
type Packet struct {
	Hook     string // input, forward or output
	IPv6     bool
	Source   netip.Addr
	Dest     netip.Addr
	Protocol uint8
	Port     uint16 // that it goes to
	State    State
	// DNAT reports whether connection tracking has translated its destination.
	DNAT Tri
}

// Tri is an answer that may be unknown. The zero Tri is Maybe.
type Tri int8

// The answers.
const (
	No    Tri = -1
	Maybe Tri = 0
	Yes   Tri = 1
)

func triOf(b bool) Tri {
	if b {
		return Yes
	}
	return No
}

// and is the answer to two questions that must both be answered by yes.
func (t Tri) and(o Tri) Tri { return min(t, o) }

// value is a number of bytes of a packet, of which some bits are known.
type value struct {
	data, known []byte
	// never are bytes that it does not begin with at an offset.
	never []never
}

type never struct {
	at   int
	data []byte
}

func unknown(n int) value { return value{data: make([]byte, n), known: make([]byte, n)} }

func known(data ...byte) value {
	v := value{data: data, known: make([]byte, len(data))}
	for i := range v.known {
		v.known[i] = 0xff
	}
	return v
}

func (v value) set(at int, data ...byte) {
	for i, b := range data {
		v.data[at+i], v.known[at+i] = b, 0xff
	}
}

// whole reports whether all bits are known.
func (v value) whole() bool {
	for _, k := range v.known {
		if k != 0xff {
			return false
		}
	}
	return true
}

// equals compares with bytes; where they are fewer, with as many at the beginning.
func (v value) equals(data []byte) Tri {
	out := Yes
	for i, b := range data {
		if i >= len(v.data) {
			return Maybe
		}
		switch {
		case (v.data[i]^b)&v.known[i] != 0:
			return No
		case v.known[i] != 0xff:
			out = Maybe
		}
	}
	for _, n := range v.never {
		if end := n.at + len(n.data); end <= len(data) && string(data[n.at:end]) == string(n.data) {
			return No
		}
	}
	return out
}

// network is the header of IP.
func (p Packet) network() value {
	if p.IPv6 {
		v := unknown(40)
		v.data[0], v.known[0] = 0x60, 0xf0
		v.set(6, p.Protocol)
		p.addresses(v, 8, 24)
		return v
	}
	v := unknown(20)
	v.set(0, 0x45)
	v.set(9, p.Protocol)
	p.addresses(v, 12, 16)
	return v
}

func (p Packet) addresses(v value, source, dest int) {
	if p.Source.IsValid() {
		v.set(source, p.Source.AsSlice()...)
	}
	if p.Dest.IsValid() {
		v.set(dest, p.Dest.AsSlice()...)
	}
}

// transport is the header of TCP, UDP or SCTP.
func (p Packet) transport() value {
	v := unknown(20)
	if p.Port != 0 {
		v.set(2, byte(p.Port>>8), byte(p.Port))
	}
	if p.Protocol == tcp && p.State == New {
		v.data[13], v.known[13] = 0x02, 0x3f // SYN alone
	}
	return v
}

const (
	tcp  = 6
	udp  = 17
	sctp = 132
)

// Keys of meta and ct, and bits of connection tracking (include/uapi/linux/netfilter/nf_tables.h,
// nf_conntrack_common.h).
const (
	metaProtocol = 1
	metaIIF      = 4
	metaOIF      = 5
	metaIIFName  = 6
	metaOIFName  = 7
	metaNFProto  = 15
	metaL4Proto  = 16

	ctState     = 0
	ctDirection = 1
	ctStatus    = 2

	stateNew         = 8
	stateEstablished = 2
	statusDNAT       = 32

	nfprotoIPv4 = 2
	nfprotoIPv6 = 10
)

// meta is a property of the packet beside its bytes. None of those that are judged comes by
// the loopback device, or leaves by it.
func (p Packet) meta(key uint32) value {
	switch key {
	case metaProtocol:
		if p.IPv6 {
			return known(0x86, 0xdd)
		}
		return known(0x08, 0x00)
	case metaNFProto:
		if p.IPv6 {
			return known(nfprotoIPv6)
		}
		return known(nfprotoIPv4)
	case metaL4Proto:
		return known(p.Protocol)
	case metaIIFName, metaOIFName:
		v := unknown(16)
		v.never = []never{{data: []byte("lo\x00")}}
		return v
	case metaIIF, metaOIF:
		v := unknown(4)
		v.never = []never{{data: host(1)}}
		return v
	}
	return unknown(16)
}

// ct is a property of its connection.
func (p Packet) ct(key uint32) value {
	switch key {
	case ctState:
		if p.State == Reply {
			return known(host(stateEstablished)...)
		}
		return known(host(stateNew)...)
	case ctDirection:
		return known(byte(triBit(triOf(p.State == Reply))))
	case ctStatus:
		v := unknown(4)
		if p.DNAT != Maybe {
			copy(v.data, host(statusDNAT*triBit(p.DNAT)))
			copy(v.known, host(statusDNAT))
		}
		return v
	}
	return unknown(16)
}

func triBit(t Tri) uint32 {
	if t == Yes {
		return 1
	}
	return 0
}

// host is a number as this machine has it in memory.
func host(n uint32) []byte { return binary.NativeEndian.AppendUint32(nil, n) }
