package capture

import (
	"encoding/binary"
	"errors"
	"net/netip"
)

// errShort: a packet, or what was kept of it, ends before its headers do.
var errShort = errors.New("packet is cut short")

// Lengths of headers in bytes.
const (
	ipv4Header = 20
	ipv6Header = 40
	icmpHeader = 8
	portsOnly  = 4 // all that a quoted packet is sure to have of its transport header, with 4 more
)

// decode reads a packet that begins at its network header (RFC 791, RFC 8200).
func decode(b []byte) (Packet, error) {
	p, payload, err := decodeNetwork(b)
	if err != nil {
		return p, err
	}
	switch p.Protocol {
	case ICMP, ICMPv6:
		return decodeICMP(p, payload)
	}
	return decodeTransport(p, payload)
}

// decodeNetwork reads addresses and protocol.
func decodeNetwork(b []byte) (p Packet, payload []byte, err error) {
	var src, dst netip.Addr
	switch {
	case len(b) >= ipv4Header && b[0]>>4 == 4:
		header := int(b[0]&15) * 4
		if header < ipv4Header || len(b) < header {
			return p, nil, errShort
		}
		src, dst = netip.AddrFrom4([4]byte(b[12:16])), netip.AddrFrom4([4]byte(b[16:20]))
		p.Protocol, payload = b[9], b[header:]
	case len(b) >= ipv6Header && b[0]>>4 == 6:
		src, dst = netip.AddrFrom16([16]byte(b[8:24])), netip.AddrFrom16([16]byte(b[24:40]))
		p.Protocol, payload = b[6], b[ipv6Header:]
	default:
		return p, nil, errShort
	}
	p.Src, p.Dst = netip.AddrPortFrom(src, 0), netip.AddrPortFrom(dst, 0)
	return p, payload, nil
}

// decodeTransport reads the ports, which TCP, UDP and SCTP have at the same place, and further
// fields of TCP if they are present. A quoted packet may end after its first eight bytes.
func decodeTransport(p Packet, b []byte) (Packet, error) {
	if len(b) < portsOnly {
		return p, errShort
	}
	p.Src = netip.AddrPortFrom(p.Src.Addr(), binary.BigEndian.Uint16(b))
	p.Dst = netip.AddrPortFrom(p.Dst.Addr(), binary.BigEndian.Uint16(b[2:]))
	if p.Protocol == TCP && len(b) >= 14 {
		p.Seq, p.Flags = binary.BigEndian.Uint32(b[4:]), b[13]
	}
	return p, nil
}

// decodeICMP reads the packet that a message is about.
func decodeICMP(p Packet, b []byte) (Packet, error) {
	if len(b) < icmpHeader {
		return p, errShort
	}
	p.Refusal = refusal(p.Protocol, b[0], b[1])
	of, payload, err := decodeNetwork(b[icmpHeader:])
	if err != nil {
		return p, err
	}
	if of, err = decodeTransport(of, payload); err != nil {
		return p, err
	}
	p.Of = &of
	return p, nil
}

// Types of messages that refuse (RFC 792, RFC 4443).
const (
	unreachable4, exceeded4         = 3, 11
	unreachable6, tooBig6, exceeded = 1, 2, 3
)

// refusal returns the meaning of a message.
func refusal(protocol, kind, code uint8) string {
	type message struct{ protocol, kind, code uint8 }
	switch (message{protocol, kind, code}) {
	case message{ICMP, unreachable4, 0}, message{ICMPv6, unreachable6, 0}:
		return "network unreachable"
	case message{ICMP, unreachable4, 1}, message{ICMPv6, unreachable6, 3}:
		return "host unreachable"
	case message{ICMP, unreachable4, 3}, message{ICMPv6, unreachable6, 4}:
		return "port unreachable"
	case message{ICMP, unreachable4, 4}, message{ICMPv6, tooBig6, 0}:
		return "packet too big"
	case message{ICMP, unreachable4, 9}, message{ICMP, unreachable4, 10}, message{ICMP, unreachable4, 13}, message{ICMPv6, unreachable6, 1}:
		return "administratively prohibited"
	}
	switch {
	case protocol == ICMP && kind == exceeded4, protocol == ICMPv6 && kind == exceeded:
		return "time exceeded"
	}
	return "unreachable"
}
