package nfnetlink

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// Attrs is a list of attributes. A malformed attribute reads as absent, and Err returns why.
type Attrs struct {
	b    []byte
	fail *error
}

// Attributes reads a list of attributes.
func Attributes(b []byte) Attrs { return Attrs{b, new(error)} }

// Each visits all attributes; those that have attributes in turn can be asked for them.
func (a Attrs) Each(visit func(kind uint16, value Attrs)) {
	for b := a.b; len(b) > 0; {
		if len(b) < attrLen {
			*a.fail = fmt.Errorf("%w: %d bytes after the last attribute", ErrMalformed, len(b))
			return
		}
		n := int(Native.Uint16(b))
		if n < attrLen || n > len(b) {
			*a.fail = fmt.Errorf("%w: attribute of %d bytes in %d", ErrMalformed, n, len(b))
			return
		}
		visit(Native.Uint16(b[2:])&typeMask, Attrs{b[attrLen:n], a.fail})
		b = b[min(align(n), len(b)):]
	}
}

// align returns the length that messages and attributes of a length take in a datagram.
func align(n int) int { return (n + 3) &^ 3 }

// Err returns why an attribute could not be read, nil where all could.
func (a Attrs) Err() error { return *a.fail }

// Fail notes why what was read is malformed, unless something is noted already.
func (a Attrs) Fail(format string, args ...any) {
	if *a.fail == nil {
		*a.fail = fmt.Errorf("%w: "+format, append([]any{ErrMalformed}, args...)...)
	}
}

// Get returns the last attribute of a kind.
func (a Attrs) Get(kind uint16) (out Attrs, ok bool) {
	a.Each(func(k uint16, value Attrs) {
		if k == kind {
			out, ok = value, true
		}
	})
	return out, ok
}

// Has reports whether there is an attribute of a kind.
func (a Attrs) Has(kind uint16) bool {
	_, ok := a.Get(kind)
	return ok
}

// Raw returns the value itself, valid as long as the datagram.
func (a Attrs) Raw() []byte { return a.b }

// Bytes returns a copy of the value of a kind, nil where there is none: the buffer of the socket
// is used again.
func (a Attrs) Bytes(kind uint16) []byte {
	v, _ := a.Get(kind)
	return bytes.Clone(v.b)
}

// Text returns the string of a kind, empty where there is none.
func (a Attrs) Text(kind uint16) string {
	v, _ := a.Get(kind)
	name, _, _ := bytes.Cut(v.b, []byte{0})
	return string(name)
}

// Number returns a number of four bytes in network byte order, 0 where there is none.
func (a Attrs) Number(kind uint16) uint32 {
	if v, ok := a.Get(kind); ok && len(v.b) == 4 {
		return binary.BigEndian.Uint32(v.b)
	}
	return 0
}

// Long returns a number of eight bytes in network byte order, 0 where there is none.
func (a Attrs) Long(kind uint16) uint64 {
	if v, ok := a.Get(kind); ok && len(v.b) == 8 {
		return binary.BigEndian.Uint64(v.b)
	}
	return 0
}
