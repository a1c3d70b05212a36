package ipset

import (
	"cmp"
	"errors"
	"fmt"
)

// Type is the kernel's name of a set type.
type Type string

// The set types this package encodes and decodes.
const (
	HashIP        Type = "hash:ip"
	HashIPPort    Type = "hash:ip,port"
	HashIPPortIP  Type = "hash:ip,port,ip"
	HashIPPortNet Type = "hash:ip,port,net"
	BitmapPort    Type = "bitmap:port"
)

// Types returns the supported set types in a fixed order.
func Types() []Type {
	return []Type{HashIP, HashIPPort, HashIPPortIP, HashIPPortNet, BitmapPort}
}

// Supported reports whether members of this type can be read and written here.
func (t Type) Supported() bool {
	switch t {
	case HashIP, HashIPPort, HashIPPortIP, HashIPPortNet, BitmapPort:
		return true
	}
	return false
}

// Hash reports whether the type is one of the supported hash types, which have
// a family, a hash size and a maximum number of elements.
func (t Type) Hash() bool { return t.Supported() && t != BitmapPort }

// Family is the address family of a set, in the kernel's NFPROTO_* values.
type Family uint8

// The families of a set. A bitmap:port set has none.
const (
	Unspec Family = 0
	IPv4   Family = 2
	IPv6   Family = 10
)

// String returns the word the ipset tool uses: "inet", "inet6" or "unspec".
func (f Family) String() string {
	switch f {
	case IPv4:
		return "inet"
	case IPv6:
		return "inet6"
	case Unspec:
		return "unspec"
	}
	return fmt.Sprintf("family %d", uint8(f))
}

// Limits and defaults of the kernel (include/linux/netfilter/ipset).
const (
	MaxNameLen      = 31    // bytes, without the terminating NUL
	DefaultHashSize = 1024  // buckets at creation
	DefaultMaxElem  = 65536 // entries that always fit; see ErrFull
	MaxPort         = 65535
	minHashSize     = 64
)

// Set is the header of a set: a comparable value with everything that is
// decided at creation. Two headers that differ only in HashSize describe the
// same set, because the kernel grows it; compare with Compatible.
type Set struct {
	Name   string
	Type   Type
	Family Family // Unspec for bitmap:port

	HashSize uint32 // hash types: initial buckets, 0 means DefaultHashSize
	MaxElem  uint32 // hash types: most entries it takes, 0 means DefaultMaxElem

	// bitmap:port: inclusive range; both 0 means 0-65535, so a set of port 0
	// alone cannot be expressed.
	PortFrom, PortTo uint16

	// Timeout is after how many seconds the kernel deletes an entry by itself, counted from
	// when it was added last; 0 means never.
	Timeout uint32

	// Options holds create options this package does not set, as the tool
	// prints them ("counters comment"). Only List and ListSets fill
	// it; Validate refuses it in a set that is to be created.
	Options string
}

// WithDefaults returns the set with zero values replaced by the kernel's
// defaults, which is the form List returns.
func (s Set) WithDefaults() Set {
	switch {
	case s.Type.Hash():
		s.HashSize = cmp.Or(s.HashSize, DefaultHashSize)
		s.MaxElem = cmp.Or(s.MaxElem, DefaultMaxElem)
	case s.Type == BitmapPort && s.PortFrom == 0 && s.PortTo == 0:
		s.PortTo = MaxPort
	}
	return s
}

// Compatible reports whether a set found in the kernel can serve where s is
// wanted: same name, type, family, capacity, time-out and options. The hash size is
// ignored. It is stricter than the kernel's own `create -exist`, which accepts
// a set of the other family.
func (s Set) Compatible(found Set) bool {
	s, found = s.WithDefaults(), found.WithDefaults()
	s.HashSize, found.HashSize = 0, 0
	return s == found
}

// Validate reports everything that is wrong with a set to be created, as one
// error that matches ErrInvalid.
func (s Set) Validate() error {
	problems := []error{validateName(s.Name), s.validateShape()}
	if s.Options != "" {
		problems = append(problems, fmt.Errorf("options %q are not supported", s.Options))
	}
	if err := errors.Join(problems...); err != nil {
		return fmt.Errorf("set %q: %w: %w", s.Name, ErrInvalid, err)
	}
	return nil
}

// validateShape checks the fields that belong to the type.
func (s Set) validateShape() error {
	switch {
	case !s.Type.Supported():
		return fmt.Errorf("type %q is not supported", s.Type)
	case s.Type == BitmapPort:
		return s.validateBitmap()
	case s.Family != IPv4 && s.Family != IPv6:
		return fmt.Errorf("type %s needs family inet or inet6, not %s", s.Type, s.Family)
	case s.PortFrom != 0 || s.PortTo != 0:
		return fmt.Errorf("type %s has no port range", s.Type)
	}
	return nil
}

// validateBitmap checks a bitmap:port header.
func (s Set) validateBitmap() error {
	switch {
	case s.Family != Unspec:
		return fmt.Errorf("type %s has no family, not %s", s.Type, s.Family)
	case s.HashSize != 0 || s.MaxElem != 0:
		return fmt.Errorf("type %s has no hashsize or maxelem", s.Type)
	case s.PortFrom > s.PortTo:
		return fmt.Errorf("port range %d-%d is reversed", s.PortFrom, s.PortTo)
	}
	return nil
}
