package model

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/kube-ipvs/kube-ipvs/internal/netkey"
)

// Protocol is the transport protocol of a Service port.
type Protocol = netkey.Protocol

// The transport protocols of v1.Service (spec.ports[].protocol).
const (
	TCP  = netkey.TCP
	UDP  = netkey.UDP
	SCTP = netkey.SCTP
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

// Family is an IP address family. The zero Family is neither.
type Family = netkey.Family

// The two address families.
const (
	IPv4 = netkey.IPv4
	IPv6 = netkey.IPv6
)

// Families returns both, for loops over both.
func Families() [2]Family { return netkey.Families() }

// FamilyOf returns the family of a valid address; an IPv4-mapped IPv6 address
// counts as IPv6, so unmap before.
func FamilyOf(a netip.Addr) Family { return netkey.FamilyOf(a) }

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
