package nfnetlink

import (
	"encoding/binary"
	"errors"
	"fmt"
	"syscall"
)

// Numbers of netlink and nfnetlink (include/uapi/linux/netlink.h, netfilter/nfnetlink.h), spelled
// out so that the codec builds on every operating system.
const (
	HeaderLen = 16
	familyLen = 4 // struct nfgenmsg
	attrLen   = 4

	Error = 2 // kinds of messages
	Done  = 3

	Request = 0x1 // flags of requests
	Ack     = 0x4
	Dump    = 0x300
	Replace = 0x100
	Create  = 0x400
	Append  = 0x800

	Interrupted = 0x10  // flag of answers: the dump met a change
	ackCapped   = 0x100 // flag of a verdict: it has no copy of the request
	ackTLVs     = 0x200 // flag of a verdict: it has attributes

	BatchBegin = 0x10
	BatchEnd   = 0x11

	// NFTables is the subsystem of nf_tables.
	NFTables = 10

	nested   = 0x8000
	typeMask = 0x3fff // without the flags of nested attributes and of byte order
)

// ErrMalformed is returned for an answer that does not follow the format of netlink.
var ErrMalformed = errors.New("malformed netlink answer")

// Native is the byte order of netlink headers. Attributes of nf_tables are in network byte order.
var Native = binary.NativeEndian

// Message is one answer of the kernel.
type Message struct {
	Kind, Flags uint16
	Seq         uint32
	// Port is the port of the socket whose request caused the message.
	Port uint32
	// Body follows the header; of an answer of nf_tables it begins with struct nfgenmsg.
	Body []byte
}

// Next cuts the first message off a datagram.
func Next(b []byte) (m Message, rest []byte, err error) {
	if len(b) < HeaderLen {
		return m, nil, fmt.Errorf("%w: %d bytes of header", ErrMalformed, len(b))
	}
	length := int(Native.Uint32(b))
	if length < HeaderLen || length > len(b) {
		return m, nil, fmt.Errorf("%w: message of %d bytes in %d", ErrMalformed, length, len(b))
	}
	m = Message{
		Kind: Native.Uint16(b[4:]), Flags: Native.Uint16(b[6:]), Seq: Native.Uint32(b[8:]), Port: Native.Uint32(b[12:]),
		Body: b[HeaderLen:length],
	}
	return m, b[min(align(length), len(b)):], nil
}

// Verdict returns the number in an error or in the end of a dump, 0 for success.
func (m Message) Verdict() (syscall.Errno, error) {
	if len(m.Body) < 4 {
		if m.Kind == Done {
			return 0, nil
		}
		return 0, fmt.Errorf("%w: verdict of %d bytes", ErrMalformed, len(m.Body))
	}
	code := int32(Native.Uint32(m.Body))
	if code > 0 {
		return 0, fmt.Errorf("%w: verdict %d", ErrMalformed, code)
	}
	return syscall.Errno(-code), nil
}

// Offset returns where the attribute that a refusal is about begins, in bytes from the start of
// its request, and false where the kernel does not say (NLMSGERR_ATTR_OFFS).
func (m Message) Offset() (int, bool) {
	const copied, offset = 4, 2 // the code, then the header of the request
	skip := copied + HeaderLen
	if m.Kind != Error || m.Flags&ackTLVs == 0 || len(m.Body) < skip {
		return 0, false
	}
	if m.Flags&ackCapped == 0 {
		length := int(Native.Uint32(m.Body[copied:]))
		if length < HeaderLen || length > len(m.Body) {
			return 0, false
		}
		skip = copied + align(length)
	}
	value, ok := Attributes(m.Body[min(skip, len(m.Body)):]).Get(offset)
	if !ok || len(value.b) != 4 {
		return 0, false
	}
	return int(Native.Uint32(value.b)), true
}

// Family returns the number of the family that an answer of nf_tables is about.
func (m Message) Family() uint8 {
	if len(m.Body) < familyLen {
		return 0
	}
	return m.Body[0]
}

// Attrs returns the attributes of an answer of nf_tables.
func (m Message) Attrs() Attrs {
	if len(m.Body) < familyLen {
		fail := fmt.Errorf("%w: message %#x of %d bytes", ErrMalformed, m.Kind, len(m.Body))
		return Attrs{fail: &fail}
	}
	return Attributes(m.Body[familyLen:])
}
