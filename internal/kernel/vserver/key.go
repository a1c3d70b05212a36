package vserver

import (
	"cmp"
	"fmt"
	"net/netip"
	"strconv"
)

// IP protocol numbers that IPVS balances.
const (
	ProtocolTCP  uint8 = 6
	ProtocolUDP  uint8 = 17
	ProtocolSCTP uint8 = 132
)

// ServerKey names a virtual server. Addr has no zone and is never an IPv4
// address in IPv6 form, so that keys read from the kernel equal keys written.
type ServerKey struct {
	Addr     netip.Addr
	Port     uint16
	Protocol uint8 // IP protocol number
}

// String prints "10.96.0.10:53/udp" or "[fd00::a]:53/udp".
func (k ServerKey) String() string {
	return netip.AddrPortFrom(k.Addr, k.Port).String() + "/" + protocolName(k.Protocol)
}

// Compare orders by family (IPv4 first), protocol number, address and port.
func (k ServerKey) Compare(other ServerKey) int {
	return cmp.Or(
		cmp.Compare(k.Addr.BitLen(), other.Addr.BitLen()),
		cmp.Compare(k.Protocol, other.Protocol),
		k.Addr.Compare(other.Addr),
		cmp.Compare(k.Port, other.Port),
	)
}

func (k ServerKey) check() error {
	return checkAddr(k.Addr)
}

// DestinationKey names a destination (a real server) of one virtual server.
type DestinationKey struct {
	Server ServerKey
	Addr   netip.Addr
	Port   uint16
}

// String prints "10.244.1.5:53 of 10.96.0.10:53/udp".
func (k DestinationKey) String() string {
	return netip.AddrPortFrom(k.Addr, k.Port).String() + " of " + k.Server.String()
}

// Compare orders by server, address and port.
func (k DestinationKey) Compare(other DestinationKey) int {
	return cmp.Or(
		k.Server.Compare(other.Server),
		k.Addr.Compare(other.Addr),
		cmp.Compare(k.Port, other.Port),
	)
}

func (k DestinationKey) check() error {
	return cmp.Or(k.Server.check(), checkAddr(k.Addr))
}

// checkAddr refuses addresses that the kernel could not give back as the same
// key: they would be written under one name and read under another.
func checkAddr(a netip.Addr) error {
	if !a.IsValid() || a.Is4In6() || a.Zone() != "" {
		return fmt.Errorf("address %q: %w", a, ErrInvalid)
	}
	return nil
}

func protocolName(p uint8) string {
	switch p {
	case ProtocolTCP:
		return "tcp"
	case ProtocolUDP:
		return "udp"
	case ProtocolSCTP:
		return "sctp"
	default:
		return strconv.Itoa(int(p))
	}
}
