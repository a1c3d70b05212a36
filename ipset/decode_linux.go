package ipset

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"strings"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// errMalformed is a reply that does not follow the protocol. It never comes
// from a kernel, but bytes are only trusted after they were measured.
var errMalformed = errors.New("malformed reply")

// attrTypeMask removes the nested and byte-order bits.
const attrTypeMask = ^(unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER) & 0xffff

// attrs walks the attributes in b. A broken length ends the walk with an error.
func attrs(b []byte) iter.Seq2[attr, error] {
	return func(yield func(attr, error) bool) {
		for len(b) >= unix.SizeofNlAttr {
			n := int(binary.NativeEndian.Uint16(b))
			if n < unix.SizeofNlAttr || n > len(b) {
				yield(attr{}, fmt.Errorf("attribute of length %d in %d bytes: %w", n, len(b), errMalformed))
				return
			}
			typ := int(binary.NativeEndian.Uint16(b[2:])) & attrTypeMask
			if !yield(attr{typ, b[unix.SizeofNlAttr:n]}, nil) {
				return
			}
			b = b[min((n+3)&^3, len(b)):]
		}
	}
}

// attr is one attribute; its getters return zero when the payload is too short,
// which the shape checks after decoding turn into an error.
type attr struct {
	typ  int
	data []byte
}

func (a attr) u8() uint8 {
	if len(a.data) < 1 {
		return 0
	}
	return a.data[0]
}

func (a attr) net16() uint16 {
	if len(a.data) < 2 {
		return 0
	}
	return binary.BigEndian.Uint16(a.data)
}

func (a attr) net32() uint32 {
	if len(a.data) < 4 {
		return 0
	}
	return binary.BigEndian.Uint32(a.data)
}

func (a attr) str() string {
	s, _, _ := strings.Cut(string(a.data), "\x00")
	return s
}

// addr reads an address nested by family.
func (a attr) addr() (netip.Addr, error) {
	for in, err := range attrs(a.data) {
		if err != nil {
			return netip.Addr{}, err
		}
		switch in.typ {
		case nl.IPSET_ATTR_IPADDR_IPV4, nl.IPSET_ATTR_IPADDR_IPV6:
			if ip, ok := netip.AddrFromSlice(in.data); ok {
				return ip, nil
			}
		}
	}
	return netip.Addr{}, fmt.Errorf("address attribute: %w", errMalformed)
}

// part is one message of a list: the first of a set carries its header, every
// one may carry entries, and a long set spans many.
type part struct {
	name    string
	header  bool
	info    Info
	members []byte // the payload of the entries attribute, not yet decoded
}

// decodePart reads the body of a list message.
func decodePart(b []byte) (part, error) {
	var p part
	for a, err := range attrs(b) {
		if err != nil {
			return part{}, err
		}
		switch a.typ {
		case nl.IPSET_ATTR_SETNAME:
			p.name = a.str()
		case nl.IPSET_ATTR_TYPENAME:
			p.header, p.info.Set.Type = true, Type(a.str())
		case nl.IPSET_ATTR_REVISION:
			p.info.Revision = a.u8()
		case nl.IPSET_ATTR_FAMILY:
			p.info.Set.Family = Family(a.u8())
		case nl.IPSET_ATTR_DATA:
			if err := decodeHeader(&p.info, a.data); err != nil {
				return part{}, err
			}
		case nl.IPSET_ATTR_ADT:
			p.members = a.data
		}
	}
	if p.name == "" {
		return part{}, fmt.Errorf("list message without a set name: %w", errMalformed)
	}
	p.info.Set.Name = p.name
	return p, nil
}

// decodeEntries appends the entries of one list message.
func decodeEntries(to []Entry, t Type, b []byte) ([]Entry, error) {
	for a, err := range attrs(b) {
		if err != nil {
			return to, err
		}
		if a.typ != nl.IPSET_ATTR_DATA {
			continue
		}
		e, err := decodeEntry(t, a.data)
		if err != nil {
			return to, err
		}
		to = append(to, e)
	}
	return to, nil
}

// decodeEntry reads one element. Attributes of options (timeout, counters,
// comment) are skipped: they say nothing about membership.
func decodeEntry(t Type, b []byte) (Entry, error) {
	var e Entry
	var ip2 netip.Addr
	bits := -1
	for a, err := range attrs(b) {
		if err != nil {
			return Entry{}, err
		}
		switch a.typ {
		case nl.IPSET_ATTR_IP:
			e.Addr, err = a.addr()
		case nl.IPSET_ATTR_PORT:
			e.Port = a.net16()
		case nl.IPSET_ATTR_PROTO:
			e.Protocol = a.u8()
		case nl.IPSET_ATTR_IP2:
			ip2, err = a.addr()
		case nl.IPSET_ATTR_CIDR2:
			bits = int(a.u8())
		case nl.IPSET_ATTR_CADT_FLAGS:
			e.NoMatch = a.net32()&nl.IPSET_FLAG_NOMATCH != 0
		}
		if err != nil {
			return Entry{}, err
		}
	}
	return e.finish(t, ip2, bits)
}

// finish puts the second address where the type wants it and refuses an element
// without an address, which would print as a port.
func (e Entry) finish(t Type, ip2 netip.Addr, bits int) (Entry, error) {
	if t != BitmapPort && !e.Addr.IsValid() {
		return Entry{}, fmt.Errorf("element of %s without address: %w", t, errMalformed)
	}
	switch t {
	case HashIPPortIP:
		e.Addr2 = ip2
	case HashIPPortNet:
		if bits < 0 {
			bits = ip2.BitLen()
		}
		e.Net = netip.PrefixFrom(ip2, bits)
	}
	return e, nil
}
