package ipset

import (
	"cmp"
	"net/netip"
	"strconv"
)

// Entry is one member of a set: a comparable, canonical value that can be a
// map key. Which fields are used depends on the set's type; the constructors
// below fill the right ones.
type Entry struct {
	Addr     netip.Addr   // all hash types
	Protocol uint8        // types with a port except bitmap:port: IPPROTO_* number
	Port     uint16       // types with a port
	Addr2    netip.Addr   // hash:ip,port,ip
	Net      netip.Prefix // hash:ip,port,net: masked, never of length 0

	// NoMatch marks a member of hash:ip,port,net that excludes its network.
	NoMatch bool
}

// The transport protocols whose ports the kernel keeps in a set.
const (
	TCP     uint8 = 6
	UDP     uint8 = 17
	SCTP    uint8 = 132
	UDPLite uint8 = 136
)

// IP returns a member of a hash:ip set.
func IP(addr netip.Addr) Entry { return Entry{Addr: addr.Unmap()} }

// IPPort returns a member of a hash:ip,port set.
func IPPort(addr netip.Addr, protocol uint8, port uint16) Entry {
	return Entry{Addr: addr.Unmap(), Protocol: protocol, Port: port}
}

// IPPortIP returns a member of a hash:ip,port,ip set.
func IPPortIP(addr netip.Addr, protocol uint8, port uint16, addr2 netip.Addr) Entry {
	e := IPPort(addr, protocol, port)
	e.Addr2 = addr2.Unmap()
	return e
}

// IPPortNet returns a member of a hash:ip,port,net set. Host bits of the
// network are cleared, as the kernel does.
func IPPortNet(addr netip.Addr, protocol uint8, port uint16, network netip.Prefix) Entry {
	e := IPPort(addr, protocol, port)
	e.Net = network.Masked()
	return e
}

// Port returns a member of a bitmap:port set.
func Port(port uint16) Entry { return Entry{Port: port} }

// String prints the entry as `ipset save` does: "10.96.0.1,tcp:80". A network
// of full length is printed without it, and a protocol without a well-known
// port name by number.
func (e Entry) String() string {
	if !e.Addr.IsValid() {
		return strconv.Itoa(int(e.Port))
	}
	b := e.Addr.AppendTo(make([]byte, 0, 64))
	if e.Protocol != 0 {
		b = append(b, ',')
		b = append(b, ProtocolName(e.Protocol)...)
		b = append(b, ':')
		b = strconv.AppendUint(b, uint64(e.Port), 10)
	}
	switch {
	case e.Net.IsValid():
		b = append(b, ',')
		b = appendNet(b, e.Net)
	case e.Addr2.IsValid():
		b = append(b, ',')
		b = e.Addr2.AppendTo(b)
	}
	if e.NoMatch {
		b = append(b, " nomatch"...)
	}
	return string(b)
}

// appendNet appends the network, leaving out a full length like the tool.
func appendNet(b []byte, network netip.Prefix) []byte {
	if network.IsSingleIP() {
		return network.Addr().AppendTo(b)
	}
	return network.AppendTo(b)
}

// ProtocolName returns the name used in entries, or the number in decimal.
func ProtocolName(protocol uint8) string {
	switch protocol {
	case TCP:
		return "tcp"
	case UDP:
		return "udp"
	case SCTP:
		return "sctp"
	case UDPLite:
		return "udplite"
	}
	return strconv.Itoa(int(protocol))
}

// hasPorts tells the protocols for which the kernel stores a port.
func hasPorts(protocol uint8) bool {
	switch protocol {
	case TCP, UDP, SCTP, UDPLite:
		return true
	}
	return false
}

// Compare orders entries by address, protocol, port, second address and
// network, for deterministic output.
func (e Entry) Compare(o Entry) int {
	return cmp.Or(
		e.Addr.Compare(o.Addr),
		cmp.Compare(e.Protocol, o.Protocol),
		cmp.Compare(e.Port, o.Port),
		e.Addr2.Compare(o.Addr2),
		e.Net.Addr().Compare(o.Net.Addr()),
		cmp.Compare(e.Net.Bits(), o.Net.Bits()),
		cmp.Compare(b2i(e.NoMatch), b2i(o.NoMatch)),
	)
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}
