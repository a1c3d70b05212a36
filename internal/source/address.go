package source

import (
	"fmt"
	"net/netip"
	"strings"
)

var broadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})

// addr reads an address, canonical; an IPv4-mapped one is taken as IPv4, as the API does
// (net.ParseIP). One that is none, or that refuse has a reason against, is noted; leading
// zeros are noted and read.
func (p *problems) addr(field, s string, refuse func(netip.Addr) string) (netip.Addr, bool) {
	a, zeros, reason := parseAddr(s)
	if reason == "" {
		reason = refuse(a)
	}
	if reason != "" {
		p.add(field, "%s %s", quote(s), reason)
		return netip.Addr{}, false
	}
	a = a.Unmap()
	if zeros {
		p.zeros(field, s, a)
	}
	return a, true
}

// prefix reads a network without its host bits, with notes as addr makes them.
func (p *problems) prefix(field, s string) (netip.Prefix, bool) {
	pfx, zeros, ok := parsePrefix(s)
	switch {
	case !ok:
		p.add(field, "%s is not a network", quote(s))
	case zeros:
		p.zeros(field, s, pfx)
	}
	return pfx, ok
}

// zeros notes how leading zeros were taken: others read them as octal.
func (p *problems) zeros(field, s string, as fmt.Stringer) {
	p.add(field, "%s has leading zeros, read as %s", quote(s), as)
}

// parseAddr reads an address the way the API does: leading zeros are decimal
// (010.096.000.001 is 10.96.0.1), for older objects have them. The reason is
// empty when the address is one.
func parseAddr(s string) (a netip.Addr, zeros bool, reason string) {
	a, err := netip.ParseAddr(s)
	if err != nil {
		a, err = netip.ParseAddr(stripZeros(s))
		zeros = true
	}
	switch {
	case err != nil:
		return netip.Addr{}, false, "is not an IP address"
	case a.Zone() != "":
		return netip.Addr{}, false, "has a zone"
	}
	return a, zeros, ""
}

// anyAddr refuses nothing: a node's own addresses are not ours to judge.
func anyAddr(netip.Addr) string { return "" }

// unicast refuses what the API refuses for endpoints, and what must never be
// bound as a virtual address.
func unicast(a netip.Addr) string {
	a = a.Unmap()
	switch {
	case a.IsUnspecified():
		return "is the unspecified address"
	case a.IsLoopback():
		return "is a loopback address"
	case a.IsMulticast():
		return "is a multicast address"
	case a.IsLinkLocalUnicast():
		return "is a link-local address"
	case a == broadcast:
		return "is the broadcast address"
	}
	return ""
}

// parsePrefix reads a network, leading zeros included, without its host bits.
func parsePrefix(s string) (pfx netip.Prefix, zeros, ok bool) {
	pfx, err := netip.ParsePrefix(s)
	if err != nil {
		addr, bits, _ := strings.Cut(s, "/")
		pfx, err = netip.ParsePrefix(stripZeros(addr) + "/" + trimZeros(bits))
		zeros = true
	}
	if err != nil || pfx.Addr().Is4In6() {
		return netip.Prefix{}, false, false
	}
	return pfx.Masked(), zeros, true
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
		octets[i] = trimZeros(o)
	}
	return s[:cut] + strings.Join(octets, ".")
}

// trimZeros removes the leading zeros of a number, but never all of it.
func trimZeros(s string) string {
	if trimmed := strings.TrimLeft(s, "0"); trimmed != "" || s == "" {
		return trimmed
	}
	return "0"
}
