package nfnetlink

import "encoding/binary"

// Builder appends messages with attributes to B.
type Builder struct {
	B    []byte
	mark int // where the message begins that is being built
}

// Begin starts a message of nfnetlink. Resource is the subsystem of the limits of a batch, else 0.
func (b *Builder) Begin(kind, flags uint16, seq uint32, family uint8, resource uint16) {
	b.mark = len(b.B)
	b.B = Native.AppendUint32(b.B, 0) // length, filled in by End
	b.B = Native.AppendUint16(b.B, kind)
	b.B = Native.AppendUint16(b.B, Request|flags)
	b.B = Native.AppendUint32(b.B, seq)
	b.B = Native.AppendUint32(b.B, 0) // sender: the kernel fills it in
	b.B = append(b.B, family, 0)
	b.B = binary.BigEndian.AppendUint16(b.B, resource)
}

// End completes the message.
func (b *Builder) End() { Native.PutUint32(b.B[b.mark:], uint32(len(b.B)-b.mark)) }

// Acknowledge asks for an answer to the last message also if it is not refused.
func (b *Builder) Acknowledge() {
	Native.PutUint16(b.B[b.mark+6:], Native.Uint16(b.B[b.mark+6:])|Ack)
}

// Bytes adds an attribute.
func (b *Builder) Bytes(kind uint16, value []byte) {
	b.B = Native.AppendUint16(b.B, uint16(attrLen+len(value)))
	b.B = Native.AppendUint16(b.B, kind)
	b.B = append(b.B, value...)
	for len(b.B)%4 != 0 {
		b.B = append(b.B, 0)
	}
}

// Fill adds an attribute whose value fill appends.
func (b *Builder) Fill(kind uint16, fill func(to []byte) []byte) {
	mark := len(b.B)
	b.B = Native.AppendUint16(b.B, 0)
	b.B = Native.AppendUint16(b.B, kind)
	b.B = fill(b.B)
	Native.PutUint16(b.B[mark:], uint16(len(b.B)-mark))
	for len(b.B)%4 != 0 {
		b.B = append(b.B, 0)
	}
}

// Text adds a string with its terminating zero.
func (b *Builder) Text(kind uint16, value string) { b.Bytes(kind, append([]byte(value), 0)) }

// Number adds a number of four bytes in network byte order.
func (b *Builder) Number(kind uint16, value uint32) {
	b.Bytes(kind, binary.BigEndian.AppendUint32(nil, value))
}

// Long adds a number of eight bytes in network byte order.
func (b *Builder) Long(kind uint16, value uint64) {
	b.Bytes(kind, binary.BigEndian.AppendUint64(nil, value))
}

// Nest opens an attribute that consists of attributes; Unnest closes it.
func (b *Builder) Nest(kind uint16) (mark int) {
	mark = len(b.B)
	b.B = Native.AppendUint16(b.B, 0)
	b.B = Native.AppendUint16(b.B, kind|nested)
	return mark
}

// Unnest closes the attribute that Nest opened.
func (b *Builder) Unnest(mark int) { Native.PutUint16(b.B[mark:], uint16(len(b.B)-mark)) }
