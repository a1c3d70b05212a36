package conntrack

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"syscall"
)

// ErrNotExist says that the table has no such flow: it was never tracked, or is
// forgotten already.
var ErrNotExist = errors.New("no such flow")

// Origin tells who began the flow whose answers go from one end to another, and what
// it dialled: a look-up of one entry, whatever the size of the table
// (ctnetlink_get_conntrack). It fails with ErrNotExist where there is none.
func (h *Handle) Origin(ctx context.Context, protocol uint8, from, to netip.AddrPort) (client netip.AddrPort, dialled Key, err error) {
	n, err := h.take(ctx)
	if err != nil {
		return client, dialled, err
	}
	defer h.give(n)
	if err := h.ready(&n.dumps); err != nil {
		return client, dialled, err
	}
	n.seq++
	var found tuple
	var errno syscall.Errno
	err = h.exchange(ctx, n.dumps, h.opts.Deadline, lookup(n.seq, protocol, from, to), func(datagram []byte) (bool, error) {
		return digest(datagram, n.seq, n.seq, func(m message) (bool, error) {
			if m.kind == typeError {
				errno = m.verdict()
				return true, nil
			}
			f, err := decodeFlow(m.body)
			if err == nil && f.original != nil {
				found, err = decodeTuple(f.original)
			}
			return false, err // the acknowledgement comes next
		})
	})
	switch {
	case err != nil:
		h.drop(&n.dumps)
	case errno == syscall.ENOENT:
		err = ErrNotExist
	case errno != 0:
		err = errno
	case !found.source.Addr().IsValid():
		err = errMalformed
	default:
		return found.source, found.key(), nil
	}
	return client, dialled, fmt.Errorf("look up the flow that is answered from %s to %s: %w", from, to, err)
}

// lookup asks for the flow that has a direction.
func lookup(seq uint32, protocol uint8, from, to netip.AddrPort) []byte {
	family, source, destination := uint8(familyIPv4), uint16(ipv4Source), uint16(ipv4Destination)
	if from.Addr().Is6() {
		family, source, destination = familyIPv6, ipv6Source, ipv6Destination
	}
	port := func(p uint16) []byte { return binary.BigEndian.AppendUint16(nil, p) }
	b := appendHeader(nil, getFlows, flagAck, seq, family)
	b = appendAttr(b, attrReply|nested,
		attr(tupleIP|nested, attr(source, from.Addr().AsSlice()), attr(destination, to.Addr().AsSlice())),
		attr(tupleProto|nested, attr(protoNumber, []byte{protocol}),
			attr(protoSourcePort, port(from.Port())), attr(protoDestinationPort, port(to.Port()))))
	sealMessage(b, 0)
	return b
}
