package source

import (
	"net/netip"
	"strings"
)

var broadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})

// parseAddr reads an address the way the API does: leading zeros are decimal
// (010.096.000.001 is 10.96.0.1), an IPv4-mapped address is its IPv4 address.
// The reason is empty when the address is one.
func parseAddr(s string) (a netip.Addr, reason string) {
	a, err := netip.ParseAddr(s)
	if err != nil {
		a, err = netip.ParseAddr(stripZeros(s))
	}
	switch {
	case err != nil:
		return netip.Addr{}, "is not an IP address"
	case a.Zone() != "":
		return netip.Addr{}, "has a zone"
	}
	return a.Unmap(), ""
}

// unicast reads an address that traffic may be sent to. It refuses what the API
// refuses for endpoints, and what must never be bound as a virtual address.
func unicast(s string) (netip.Addr, string) {
	a, reason := parseAddr(s)
	if reason != "" {
		return a, reason
	}
	switch {
	case a.IsUnspecified():
		reason = "is the unspecified address"
	case a.IsLoopback():
		reason = "is a loopback address"
	case a.IsMulticast():
		reason = "is a multicast address"
	case a.IsLinkLocalUnicast():
		reason = "is a link-local address"
	case a == broadcast:
		reason = "is the broadcast address"
	}
	return a, reason
}

// parsePrefix reads a network, leading zeros included, without its host bits.
func parsePrefix(s string) (netip.Prefix, bool) {
	addr, bits, _ := strings.Cut(s, "/")
	pfx, err := netip.ParsePrefix(stripZeros(addr) + "/" + bits)
	if err != nil || pfx.Addr().Is4In6() {
		return netip.Prefix{}, false
	}
	return pfx.Masked(), true
}

// stripZeros removes the leading zeros of the dotted part of an address, which
// netip refuses because other programs read them as octal.
func stripZeros(s string) string {
	cut := strings.LastIndexByte(s, ':') + 1
	octets := strings.Split(s[cut:], ".")
	if len(octets) != 4 {
		return s
	}
	for i, o := range octets {
		if trimmed := strings.TrimLeft(o, "0"); trimmed != "" {
			octets[i] = trimmed
		} else if o != "" {
			octets[i] = "0"
		}
	}
	return s[:cut] + strings.Join(octets, ".")
}
