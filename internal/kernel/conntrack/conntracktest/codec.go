package conntracktest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/conntrack"
	"github.com/kube-ipvs/kube-ipvs/internal/netkey"
)

// Attributes that a flow has, as include/uapi/linux/netfilter/nfnetlink_conntrack.h
// numbers them.
const (
	ctaTupleOrig  = 1
	ctaTupleReply = 2
	ctaStatus     = 3
	ctaState      = 4
	ctaTimeout    = 7
	ctaID         = 12
	ctaZone       = 18
	ctaFilter     = 25
	nested        = 1 << 15
)

// The bits of ctaStatus: a reply was seen (IPS_SEEN_REPLY), and the flow is in the table
// (IPS_CONFIRMED), without which the kernel accepts none.
const (
	seenReply = 1 << 1
	confirmed = 1 << 3
)

// The values of ctaState for a connection, in an attribute of its protocol. SCTP also has the tag
// of either direction, without which the kernel takes no state.
const (
	stateTCP   = 1
	stateSCTP  = 3
	tcpClosed  = 8
	sctpClosed = 1
)

// AppendFlow appends the attributes that a flow has: both directions, the zone, whether
// the client had an answer and whether its connection was reset.
// It allocates nothing of its own: there may be a million.
func AppendFlow(b []byte, f Flow) []byte {
	b = appendTuple(b, ctaTupleOrig, f.Protocol, f.Client, f.Dialled)
	b = appendTuple(b, ctaTupleReply, f.Protocol, f.Answers, f.Towards)
	if f.Zone != 0 {
		b = append(b, tlv(ctaZone, binary.BigEndian.AppendUint16(nil, f.Zone))...)
	}
	status := uint32(confirmed)
	if f.Replied {
		status |= seenReply
	}
	if f.Reset {
		b = append(b, closedState(f.Protocol)...)
	}
	return binary.BigEndian.AppendUint32(appendLong(b, ctaStatus, 4), status)
}

func closedState(protocol netkey.Protocol) []byte {
	if protocol == conntrack.ProtocolSCTP {
		tags := append(tlv(2, make([]byte, 4)), tlv(3, make([]byte, 4))...)
		return tlv(ctaState|nested, tlv(stateSCTP|nested, append(tlv(1, []byte{sctpClosed}), tags...)))
	}
	return tlv(ctaState|nested, tlv(stateTCP|nested, tlv(1, []byte{tcpClosed})))
}

// reset reports whether a state is that of a connection that was reset.
func reset(protocol netkey.Protocol, b []byte) (bool, error) {
	kind, closed := stateTCP, byte(tcpClosed)
	if protocol == conntrack.ProtocolSCTP {
		kind, closed = stateSCTP, sctpClosed
	}
	var of, state attributes
	if err := of.split(b); err != nil {
		return false, err
	}
	err := state.split(of[kind])
	return len(state[1]) == 1 && state[1][0] == closed, err
}

func appendTuple(b []byte, kind uint16, protocol netkey.Protocol, from, to netip.AddrPort) []byte {
	tuple := len(b)
	b = appendHead(b, kind|nested)
	ip := len(b)
	b = appendHead(b, 1|nested)
	if from.Addr().Is4() {
		source, destination := from.Addr().As4(), to.Addr().As4()
		b = append(appendLong(b, 1, 4), source[:]...)
		b = append(appendLong(b, 2, 4), destination[:]...)
	} else {
		source, destination := from.Addr().As16(), to.Addr().As16()
		b = append(appendLong(b, 3, 16), source[:]...)
		b = append(appendLong(b, 4, 16), destination[:]...)
	}
	seal(b, ip)
	proto := len(b)
	b = appendHead(b, 2|nested)
	b = append(appendLong(b, 1, 1), uint8(protocol), 0, 0, 0)
	b = append(binary.BigEndian.AppendUint16(appendLong(b, 2, 2), from.Port()), 0, 0)
	b = append(binary.BigEndian.AppendUint16(appendLong(b, 3, 2), to.Port()), 0, 0)
	seal(b, proto)
	seal(b, tuple)
	return b
}

// appendHead begins an attribute that seal ends; appendLong begins one of a known
// length.
func appendHead(b []byte, kind uint16) []byte { return appendLong(b, kind, 0) }

func appendLong(b []byte, kind uint16, length int) []byte {
	b = binary.NativeEndian.AppendUint16(b, uint16(4+length))
	return binary.NativeEndian.AppendUint16(b, kind)
}

func seal(b []byte, mark int) { binary.NativeEndian.PutUint16(b[mark:], uint16(len(b)-mark)) }

// AppendID appends the number of an entry.
func AppendID(b []byte, id uint32) []byte {
	return append(b, tlv(ctaID, binary.BigEndian.AppendUint32(nil, id))...)
}

// ParseFlow reads the attributes of a flow and its number.
func ParseFlow(b []byte) (f Flow, id uint32, err error) {
	var attrs attributes
	if err = attrs.split(b); err != nil {
		return f, 0, err
	}
	if f.Protocol, f.Client, f.Dialled, err = parseTuple(attrs[ctaTupleOrig]); err != nil {
		return f, 0, err
	}
	if reply := attrs[ctaTupleReply]; reply != nil {
		if _, f.Answers, f.Towards, err = parseTuple(reply); err != nil {
			return f, 0, err
		}
	}
	if zone := attrs[ctaZone]; len(zone) == 2 {
		f.Zone = binary.BigEndian.Uint16(zone)
	}
	if status := attrs[ctaStatus]; len(status) == 4 {
		f.Replied = binary.BigEndian.Uint32(status)&seenReply != 0
	}
	if f.Reset, err = reset(f.Protocol, attrs[ctaState]); err != nil {
		return f, 0, err
	}
	if number := attrs[ctaID]; len(number) == 4 {
		id = binary.BigEndian.Uint32(number)
	}
	return f, id, nil
}

// attributes are values by their kind; those of kinds that are not here are left out.
type attributes [32][]byte

func (a *attributes) split(b []byte) error {
	for len(b) > 0 {
		if len(b) < 4 {
			return fmt.Errorf("attribute cut off: % x", b)
		}
		length := int(binary.NativeEndian.Uint16(b))
		if length < 4 || length > len(b) {
			return fmt.Errorf("attribute of %d bytes in %d", length, len(b))
		}
		if kind := binary.NativeEndian.Uint16(b[2:]) &^ nested; int(kind) < len(a) {
			a[kind] = b[4:length]
		}
		b = b[min(len(b), (length+3)/4*4):]
	}
	return nil
}

// Attrs splits a list of attributes that are known to connection tracking; of several
// of a kind the last one counts.
func Attrs(b []byte) (map[uint16][]byte, error) {
	var all attributes
	if err := all.split(b); err != nil {
		return nil, err
	}
	out := map[uint16][]byte{}
	for kind, value := range all {
		if value != nil {
			out[uint16(kind)] = value
		}
	}
	return out, nil
}

func parseTuple(b []byte) (protocol netkey.Protocol, from, to netip.AddrPort, err error) {
	var parts, ip, proto attributes
	if err = parts.split(b); err != nil {
		return 0, from, to, err
	}
	if err = errors.Join(ip.split(parts[1]), proto.split(parts[2])); err != nil {
		return 0, from, to, err
	}
	if len(proto[1]) != 1 {
		return 0, from, to, fmt.Errorf("protocol of a tuple: % x", parts[2])
	}
	kind := 1
	if ip[4] != nil {
		kind = 3
	}
	source, _ := netip.AddrFromSlice(ip[kind])
	destination, _ := netip.AddrFromSlice(ip[kind+1])
	return netkey.Protocol(proto[1][0]), netip.AddrPortFrom(source, number(proto[2])), netip.AddrPortFrom(destination, number(proto[3])), nil
}

// number reads a port; a tuple may have none.
func number(b []byte) uint16 {
	if len(b) != 2 {
		return 0
	}
	return binary.BigEndian.Uint16(b)
}

func tlv(kind uint16, value []byte) []byte {
	b := binary.NativeEndian.AppendUint16(nil, uint16(4+len(value)))
	b = binary.NativeEndian.AppendUint16(b, kind)
	b = append(b, value...)
	return append(b, make([]byte, (4-len(b)%4)%4)...)
}
