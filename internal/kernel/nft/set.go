package nft

import (
	"fmt"
	"strings"
	"time"
)

// Shape is the type of the elements of a set.
type Shape uint8

// The shapes, and the types of ipset whose place they take.
const (
	// Addr is an address (hash:ip).
	Addr Shape = iota + 1
	// AddrPort is an address, a protocol and a port (hash:ip,port).
	AddrPort
	// AddrPortAddr is an address, a protocol, a port and another address (hash:ip,port,ip).
	AddrPortAddr
	// AddrPortNet is an address, a protocol, a port and a network (hash:ip,port,net).
	AddrPortNet
	// Net is a network (hash:net).
	Net
	// Port is a port (bitmap:port).
	Port
	// ProtocolPort is a protocol and a port.
	ProtocolPort
)

// part is one field of the key of a set.
type part uint8

const (
	partAddr part = iota + 1
	partProtocol
	partPort
	partNet // an address, or all those of a network
)

// shapes are the fields of each shape.
var shapes = map[Shape][]part{
	Addr:         {partAddr},
	AddrPort:     {partAddr, partProtocol, partPort},
	AddrPortAddr: {partAddr, partProtocol, partPort, partNet},
	AddrPortNet:  {partAddr, partProtocol, partPort, partNet},
	Net:          {partNet},
	Port:         {partPort},
	ProtocolPort: {partProtocol, partPort},
}

// Ranges reports whether elements are ranges.
func (s Shape) Ranges() bool { return s == AddrPortNet || s == Net }

// Data is the type of the data of each element of a map.
type Data uint8

// The kinds of data.
const (
	// NoData makes a set of the elements.
	NoData Data = iota
	// Verdicts makes a map for VerdictMap.
	Verdicts
	// Destinations makes a map to addresses and ports, for DestinationMap.
	Destinations
)

// Set is the header of a set or a map. Values are comparable.
type Set struct {
	Shape Shape
	Data  Data
	// Timeout is after how long the kernel deletes an element by itself, in whole milliseconds,
	// counted from when it was added or updated last; 0 means never.
	Timeout time.Duration
	// Other lists the properties of a set that this package does not write; empty for ours.
	Other string
}

// check refuses a header that cannot be expressed.
func (s Set) check() error {
	switch _, known := shapes[s.Shape]; {
	case !known || s.Data > Destinations:
		return fmt.Errorf("set of shape %d with data %d: %w", s.Shape, s.Data, ErrInvalid)
	case s.Shape == Net && s.Data != NoData:
		return fmt.Errorf("map of networks: %w", ErrInvalid)
	case s.Timeout < 0 || s.Timeout%time.Millisecond != 0:
		return fmt.Errorf("time-out %s: %w; it has whole milliseconds", s.Timeout, ErrInvalid)
	case s.Timeout > 0 && s.Shape.Ranges():
		return fmt.Errorf("ranges with a time-out: %w", ErrInvalid)
	case s.Other != "":
		return fmt.Errorf("set with %s: %w; it was read, and cannot be written", s.Other, ErrInvalid)
	}
	return nil
}

// kind is the word for a set or a map.
func (s Set) kind() string {
	if s.Data == NoData {
		return "set"
	}
	return "map"
}

// Type prints what the elements are, as nft(8) does: "ipv4_addr . inet_proto . inet_service".
func (s Set) Type(f Family) string {
	typ := typeName(f, shapes[s.Shape])
	switch s.Data {
	case Verdicts:
		typ += " : verdict"
	case Destinations:
		typ += " : " + typeName(f, destination)
	}
	return typ
}

// lines prints the header as nft(8) does, one property a line.
func (s Set) lines(f Family) []string {
	out := []string{"type " + s.Type(f)}
	if s.Shape.Ranges() {
		out = append(out, "flags interval")
	}
	if s.Timeout > 0 {
		out = append(out, "timeout "+printTime(s.Timeout))
	}
	if s.Other != "" {
		out = append(out, "# "+s.Other)
	}
	return out
}

// destination has the parts of the data in a map of Destinations.
var destination = []part{partAddr, partPort}

func typeName(f Family, parts []part) string {
	addr := map[Family]string{IPv4: "ipv4_addr", IPv6: "ipv6_addr"}[f]
	names := map[part]string{partAddr: addr, partNet: addr, partProtocol: "inet_proto", partPort: "inet_service"}
	out := make([]string, len(parts))
	for i, p := range parts {
		out[i] = names[p]
	}
	return strings.Join(out, " . ")
}

// printTime prints a duration as nft(8) does: "1m30s".
func printTime(d time.Duration) string {
	var b strings.Builder
	for _, unit := range []struct {
		length time.Duration
		name   string
	}{{24 * time.Hour, "d"}, {time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"}, {time.Millisecond, "ms"}} {
		if n := d / unit.length; n > 0 {
			fmt.Fprintf(&b, "%d%s", n, unit.name)
			d %= unit.length
		}
	}
	return b.String()
}
