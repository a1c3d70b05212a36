package conntrack

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"syscall"

	"github.com/kube-ipvs/kube-ipvs/internal/netkey"
)

// ErrNotExist means that the table has no such flow: it was never tracked, or is
// gone already.
var ErrNotExist = errors.New("no such flow")

// Origin tells who began the flow whose answers go from one end to another, and what
// it dialled: a look-up of one entry, whatever the size of the table
// (ctnetlink_get_conntrack). It fails with ErrNotExist where there is none.
func (h *Handle) Origin(ctx context.Context, protocol netkey.Protocol, from, to netip.AddrPort) (client netip.AddrPort, dialled Key, err error) {
	original, _, err := h.lookUp(ctx, attrReply, tuple{from, to, protocol})
	if err != nil {
		return client, dialled, fmt.Errorf("look up the flow whose replies go from %s to %s: %w", from, to, err)
	}
	return original.source, original.key(), nil
}

// Answers returns the address that answers the flow of a client to a dialled key, and the address
// that it answers to. The latter differs from the client's if the source is rewritten, too. It is a
// look-up like Origin.
func (h *Handle) Answers(ctx context.Context, client netip.AddrPort, dialled Key) (from, to netip.AddrPort, err error) {
	_, reply, err := h.lookUp(ctx, attrOriginal, tuple{client, dialled.AddrPort(), dialled.Protocol})
	if err != nil {
		return from, to, fmt.Errorf("look up the flow of %s to %s: %w", client, dialled, err)
	}
	return reply.source, reply.destination, nil
}

// lookUp finds the flow that has a direction.
func (h *Handle) lookUp(ctx context.Context, direction uint16, t tuple) (original, reply tuple, err error) {
	n, err := h.take(ctx)
	if err != nil {
		return original, reply, err
	}
	defer h.give(n)
	if err := h.ready(&n.dumps); err != nil {
		return original, reply, err
	}
	n.seq++
	var errno syscall.Errno
	err = h.exchange(ctx, n.dumps, h.opts.Deadline, lookup(n.seq, direction, t), func(datagram []byte) (bool, error) {
		return digest(datagram, n.seq, n.seq, func(m message) (bool, error) {
			if m.kind == typeError {
				errno = m.verdict()
				return true, nil
			}
			original, reply, err = decodeBoth(m.body)
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
	case !original.source.Addr().IsValid() || !reply.source.Addr().IsValid():
		err = errMalformed
	}
	return original, reply, err
}

// decodeBoth reads both directions of a flow.
func decodeBoth(body []byte) (original, reply tuple, err error) {
	f, err := decodeFlow(body)
	if err != nil {
		return original, reply, err
	}
	if original, err = decodeTuple(f.original); err != nil {
		return original, reply, err
	}
	value, err := findAttr(f.rest, attrReply)
	if err == nil {
		reply, err = decodeTuple(value)
	}
	return original, reply, err
}

// lookup asks for the flow that has a direction.
func lookup(seq uint32, direction uint16, t tuple) []byte {
	family, source, destination := uint8(familyIPv4), uint16(ipv4Source), uint16(ipv4Destination)
	if t.source.Addr().Is6() {
		family, source, destination = familyIPv6, ipv6Source, ipv6Destination
	}
	port := func(p uint16) []byte { return binary.BigEndian.AppendUint16(nil, p) }
	b := appendHeader(nil, getFlows, flagAck, seq, family)
	b = appendAttr(b, direction|nested,
		attr(tupleIP|nested, attr(source, t.source.Addr().AsSlice()), attr(destination, t.destination.Addr().AsSlice())),
		attr(tupleProto|nested, attr(protoNumber, []byte{uint8(t.protocol)}),
			attr(protoSourcePort, port(t.source.Port())), attr(protoDestinationPort, port(t.destination.Port()))))
	sealMessage(b, 0)
	return b
}
