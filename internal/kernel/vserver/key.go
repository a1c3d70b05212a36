package vserver

import (
	"cmp"
	"fmt"
	"net/netip"

	"github.com/kube-ipvs/kube-ipvs/internal/netkey"
)

// IP protocol numbers that IPVS balances.
const (
	ProtocolTCP  = netkey.TCP
	ProtocolUDP  = netkey.UDP
	ProtocolSCTP = netkey.SCTP
)

// ServerKey names a virtual server.
type ServerKey = netkey.Tuple

// CompareServers orders by family (IPv4 first), protocol number, address and port.
func CompareServers(a, b ServerKey) int {
	return cmp.Or(
		cmp.Compare(a.Addr.BitLen(), b.Addr.BitLen()),
		cmp.Compare(a.Protocol, b.Protocol),
		a.Addr.Compare(b.Addr),
		cmp.Compare(a.Port, b.Port),
	)
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
		CompareServers(k.Server, other.Server),
		k.Addr.Compare(other.Addr),
		cmp.Compare(k.Port, other.Port),
	)
}

func (k DestinationKey) check() error {
	return cmp.Or(checkAddr(k.Server.Addr), checkAddr(k.Addr))
}

// checkAddr refuses addresses that the kernel could not give back as the same
// key: they would be written under one name and read under another.
func checkAddr(a netip.Addr) error {
	if !a.IsValid() || a.Is4In6() || a.Zone() != "" {
		return fmt.Errorf("address %q: %w", a, ErrInvalid)
	}
	return nil
}
