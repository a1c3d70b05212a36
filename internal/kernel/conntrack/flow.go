package conntrack

import (
	"encoding/binary"
	"net/netip"

	"github.com/kube-ipvs/kube-ipvs/internal/netkey"
)

// Attributes of ctnetlink (include/uapi/linux/netfilter/nfnetlink_conntrack.h).
const (
	attrOriginal = 1
	attrReply    = 2
	attrStatus   = 3
	attrState    = 4
	attrID       = 12
	attrZone     = 18
	attrFilter   = 25

	tupleIP    = 1
	tupleProto = 2

	ipv4Source      = 1
	ipv4Destination = 2
	ipv6Source      = 3
	ipv6Destination = 4

	protoNumber          = 1
	protoSourcePort      = 2
	protoDestinationPort = 3

	filterOriginal = 1
	filterReply    = 2

	// A state is an attribute in one of the protocol, of the same number for either.
	stateTCP   = 1
	stateSCTP  = 3
	stateValue = 1
)

// States of a connection that was reset (include/uapi/linux/netfilter/nf_conntrack_tcp.h and
// nf_conntrack_sctp.h): TCP_CONNTRACK_CLOSE and SCTP_CONNTRACK_CLOSED.
const (
	tcpClosed  = 8
	sctpClosed = 1
)

// The fields that a filter compares (net/netfilter/nf_internals.h, CTA_FILTER_F_*).
const (
	matchSource          = 1 << 0
	matchDestination     = 1 << 1
	matchProtocol        = 1 << 3
	matchSourcePort      = 1 << 4
	matchDestinationPort = 1 << 5
)

// seenReply: a reply was seen (IPS_SEEN_REPLY of
// include/uapi/linux/netfilter/nf_conntrack_common.h).
const seenReply = 1 << 1

// Families of nfgenmsg.
const (
	familyIPv4 = 2
	familyIPv6 = 10
)

// nfFamily is the kernel's number of a family.
func nfFamily(family uint8) uint8 {
	if family == 4 {
		return familyIPv4
	}
	return familyIPv6
}

// tuple is one direction of a flow. A protocol without ports has zeros.
type tuple struct {
	source, destination netip.AddrPort
	protocol            netkey.Protocol
}

// key is the address and port that the sender of this direction dialled.
func (t tuple) key() Key {
	return Key{Addr: t.destination.Addr(), Port: t.destination.Port(), Protocol: t.protocol}
}

// sender is the address and port of the sender in this direction.
func (t tuple) sender() Key {
	return Key{Addr: t.source.Addr(), Port: t.source.Port(), Protocol: t.protocol}
}

// back is the other direction of a flow that is not rewritten.
func (t tuple) back() tuple { return tuple{t.destination, t.source, t.protocol} }

// decodeTuple reads a tuple. Unknown attributes are ignored: the address is then not valid, and no
// key is equal to it.
func decodeTuple(b []byte) (t tuple, err error) {
	var source, destination netip.Addr
	var sourcePort, destinationPort uint16
	for len(b) > 0 {
		var kind uint16
		var value []byte
		if kind, value, b, err = cutAttr(b); err != nil {
			return tuple{}, err
		}
		switch kind {
		case tupleIP:
			source, destination, err = decodeAddresses(value)
		case tupleProto:
			t.protocol, sourcePort, destinationPort, err = decodePorts(value)
		}
		if err != nil {
			return tuple{}, err
		}
	}
	t.source, t.destination = netip.AddrPortFrom(source, sourcePort), netip.AddrPortFrom(destination, destinationPort)
	return t, nil
}

func decodeAddresses(b []byte) (source, destination netip.Addr, err error) {
	for len(b) > 0 {
		var kind uint16
		var value []byte
		if kind, value, b, err = cutAttr(b); err != nil {
			return source, destination, err
		}
		a, _ := netip.AddrFromSlice(value)
		switch {
		case kind == ipv4Source && a.Is4(), kind == ipv6Source && a.Is6():
			source = a
		case kind == ipv4Destination && a.Is4(), kind == ipv6Destination && a.Is6():
			destination = a
		}
	}
	return source, destination, nil
}

func decodePorts(b []byte) (protocol netkey.Protocol, source, destination uint16, err error) {
	for len(b) > 0 {
		var kind uint16
		var value []byte
		if kind, value, b, err = cutAttr(b); err != nil {
			return protocol, source, destination, err
		}
		switch {
		case kind == protoNumber && len(value) == 1:
			protocol = netkey.Protocol(value[0])
		case kind == protoSourcePort && len(value) == 2:
			source = binary.BigEndian.Uint16(value)
		case kind == protoDestinationPort && len(value) == 2:
			destination = binary.BigEndian.Uint16(value)
		}
	}
	return protocol, source, destination, nil
}

// flow is one entry of the table as a dump tells it. The raw parts point into the
// datagram; they name the flow in a deletion.
type flow struct {
	tuple
	original []byte // the tuple, with its zone if it has one of its own
	rest     []byte // attributes that follow the tuple
}

// decodeFlow reads the attributes that every flow needs; the others are read only of matching
// flows. The kernel puts the original tuple first.
func decodeFlow(body []byte) (f flow, err error) {
	if len(body) < nfHeaderLen {
		return f, errMalformed
	}
	for f.rest = body[nfHeaderLen:]; len(f.rest) > 0; {
		var kind uint16
		var value []byte
		if kind, value, f.rest, err = cutAttr(f.rest); err != nil {
			return flow{}, err
		}
		if kind == attrOriginal {
			t, err := decodeTuple(value)
			f.tuple, f.original = t, value
			return f, err
		}
	}
	return f, nil
}

// reply is the other direction, whose source answers the flow; its addresses are not valid
// if the kernel does not say.
func (f flow) reply() (tuple, error) {
	value, err := findAttr(f.rest, attrReply)
	if err != nil {
		return tuple{}, err
	}
	return decodeTuple(value)
}

// unanswered reports whether the flow has no reply so far; without a status attribute it is false.
func (f flow) unanswered() (bool, error) {
	value, err := findAttr(f.rest, attrStatus)
	return len(value) == 4 && binary.BigEndian.Uint32(value)&seenReply == 0, err
}

// idle reports whether a flow carries no connection: the kernel saw no answer to it, or saw
// it reset.
func (f flow) idle() (bool, error) {
	if unanswered, err := f.unanswered(); unanswered || err != nil {
		return unanswered, err
	}
	kind, closed := uint16(stateTCP), byte(tcpClosed)
	if f.protocol == ProtocolSCTP {
		kind, closed = stateSCTP, sctpClosed
	}
	value := f.rest
	for _, next := range []uint16{attrState, kind, stateValue} {
		var err error
		if value, err = findAttr(value, next); err != nil {
			return false, err
		}
	}
	return len(value) == 1 && value[0] == closed, nil
}

// appendDeletion appends the request to delete exactly this flow: the tuple, its
// zone and the number of the entry have to match. ok is false for a flow that the
// kernel gave no tuple or number for. A deletion without a tuple is an order to
// delete the whole table, so none is made.
func (f flow) appendDeletion(b []byte, seq uint32, family uint8) (out []byte, ok bool, err error) {
	id, err := findAttr(f.rest, attrID)
	if err != nil || len(id) == 0 || len(f.original) == 0 {
		return b, false, err
	}
	zone, err := findAttr(f.rest, attrZone)
	if err != nil {
		return b, false, err
	}
	mark := len(b)
	b = appendHeader(b, deleteFlow, 0, seq, nfFamily(family))
	b = appendAttr(b, attrOriginal|nested, f.original)
	if zone != nil {
		b = appendAttr(b, attrZone, zone)
	}
	b = appendAttr(b, attrID, id)
	sealMessage(b, mark)
	return b, true, nil
}
