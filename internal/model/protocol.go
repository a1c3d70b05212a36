package model

import (
	"fmt"
	"net/netip"
	"strings"
)

// Protocol is an IP protocol number (IANA), one of the three that a Service
// port can have.
type Protocol uint8

// The transport protocols of v1.Service (spec.ports[].protocol).
const (
	TCP  Protocol = 6
	UDP  Protocol = 17
	SCTP Protocol = 132
)

// ParseProtocol reads the API's spelling. Empty means TCP, the API's default.
func ParseProtocol(s string) (Protocol, error) {
	switch s {
	case "", "TCP":
		return TCP, nil
	case "UDP":
		return UDP, nil
	case "SCTP":
		return SCTP, nil
	}
	return 0, fmt.Errorf("protocol %q: use TCP, UDP or SCTP", s)
}

// String prints the lower-case name that iptables and ipset use.
func (p Protocol) String() string {
	switch p {
	case TCP:
		return "tcp"
	case UDP:
		return "udp"
	case SCTP:
		return "sctp"
	}
	return fmt.Sprintf("proto-%d", uint8(p))
}

// Family is an IP address family. The zero Family is neither.
type Family uint8

// The two address families.
const (
	IPv4 Family = 4
	IPv6 Family = 6
)

// Families lists both, for the loops that must not forget one.
func Families() [2]Family { return [2]Family{IPv4, IPv6} }

// FamilyOf tells the family of a valid address; an IPv4-mapped IPv6 address
// counts as IPv6, so unmap before asking.
func FamilyOf(a netip.Addr) Family {
	switch {
	case a.Is4():
		return IPv4
	case a.Is6():
		return IPv6
	}
	return 0
}

// ParseFamily reads the API's spelling (spec.ipFamilies, addressType).
func ParseFamily(s string) (Family, bool) {
	switch s {
	case "IPv4":
		return IPv4, true
	case "IPv6":
		return IPv6, true
	}
	return 0, false
}

// String prints the API's spelling.
func (f Family) String() string {
	switch f {
	case IPv4:
		return "IPv4"
	case IPv6:
		return "IPv6"
	}
	return "no family"
}

// joinPort prints name or name:port, the way kube-proxy names a service port.
func joinPort(name, port string) string {
	if port == "" {
		return name
	}
	var b strings.Builder
	b.WriteString(name)
	b.WriteByte(':')
	b.WriteString(port)
	return b.String()
}
