package conntrack

import (
	"encoding/binary"
	"errors"
	"fmt"
	"syscall"
)

// Netlink numbers (include/uapi/linux/netlink.h, nfnetlink.h). They are spelled
// out so that the codec builds on every operating system.
const (
	headerLen   = 16 // nlmsghdr
	nfHeaderLen = 4  // nfgenmsg: family, version, resource

	typeError = 2
	typeDone  = 3

	flagRequest     = 0x1
	flagAck         = 0x4
	flagInterrupted = 0x10  // answer: the dump met a change
	flagDump        = 0x300 // request: all that match

	nested   = 0x8000 // NLA_F_NESTED
	kindMask = 0x3fff // the type of an attribute without its flags
)

// Requests of ctnetlink, with the number of its subsystem
// (include/uapi/linux/netfilter/nfnetlink_conntrack.h).
const (
	getFlows   = 1<<8 | 1
	deleteFlow = 1<<8 | 2
	getStats   = 1<<8 | 5
)

// native is the byte order of headers; addresses, ports and numbers inside
// attributes are in network order.
var native = binary.NativeEndian

// errMalformed: an answer does not parse. It cannot be skipped, as nothing tells
// what was lost.
var errMalformed = errors.New("malformed netlink answer")

// message is one netlink message of an answer; body points into the datagram.
type message struct {
	kind, flags uint16
	seq         uint32
	body        []byte
}

// cutMessage takes the first message off a datagram.
func cutMessage(b []byte) (m message, rest []byte, err error) {
	if len(b) < headerLen {
		return m, nil, fmt.Errorf("%w: %d bytes left for a header", errMalformed, len(b))
	}
	length := native.Uint32(b)
	if length < headerLen || uint64(length) > uint64(len(b)) {
		return m, nil, fmt.Errorf("%w: a message of %d bytes in %d", errMalformed, length, len(b))
	}
	m = message{kind: native.Uint16(b[4:]), flags: native.Uint16(b[6:]), seq: native.Uint32(b[8:]), body: b[headerLen:length]}
	return m, b[min(aligned(int(length)), len(b)):], nil
}

// verdict is the errno of an error or done message; 0 is success.
func (m message) verdict() syscall.Errno {
	if len(m.body) < 4 {
		return 0 // a bare done
	}
	code := int32(native.Uint32(m.body))
	if code >= 0 {
		return 0
	}
	return syscall.Errno(-int64(code))
}

// cutAttr takes the first attribute off a list. An empty list gives a nil rest.
func cutAttr(b []byte) (kind uint16, value, rest []byte, err error) {
	if len(b) < 4 {
		return 0, nil, nil, fmt.Errorf("%w: %d bytes left for an attribute", errMalformed, len(b))
	}
	length := int(native.Uint16(b))
	if length < 4 || length > len(b) {
		return 0, nil, nil, fmt.Errorf("%w: an attribute of %d bytes in %d", errMalformed, length, len(b))
	}
	return native.Uint16(b[2:]) & kindMask, b[4:length], b[min(aligned(length), len(b)):], nil
}

// findAttr returns the value of the first attribute of a kind, or nil.
func findAttr(b []byte, kind uint16) ([]byte, error) {
	for len(b) > 0 {
		k, value, rest, err := cutAttr(b)
		if err != nil || k == kind {
			return value, err
		}
		b = rest
	}
	return nil, nil
}

// aligned rounds up to the four bytes that netlink keeps to.
func aligned(n int) int { return (n + 3) &^ 3 }

// appendHeader begins a message; sealMessage ends the one that begins at mark.
func appendHeader(b []byte, kind, flags uint16, seq uint32, family uint8) []byte {
	b = native.AppendUint32(b, 0) // length, by sealMessage
	b = native.AppendUint16(b, kind)
	b = native.AppendUint16(b, flagRequest|flags)
	b = native.AppendUint32(b, seq)
	b = native.AppendUint32(b, 0) // sender, by the kernel
	return append(b, family, 0, 0, 0)
}

func sealMessage(b []byte, mark int) { native.PutUint32(b[mark:], uint32(len(b)-mark)) }

// addFlag adds a flag to the message that b begins with.
func addFlag(b []byte, flag uint16) { native.PutUint16(b[6:], native.Uint16(b[6:])|flag) }

// appendAttr appends one attribute of a value in one or more pieces.
func appendAttr(b []byte, kind uint16, pieces ...[]byte) []byte {
	mark := len(b)
	b = native.AppendUint16(b, 0)
	b = native.AppendUint16(b, kind)
	for _, p := range pieces {
		b = append(b, p...)
	}
	native.PutUint16(b[mark:], uint16(len(b)-mark))
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	return b
}

// attr is an attribute of its own, to be a piece of another.
func attr(kind uint16, pieces ...[]byte) []byte { return appendAttr(nil, kind, pieces...) }
