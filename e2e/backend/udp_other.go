//go:build !linux

package backend

import (
	"net"
	"net/netip"
)

func wantLocal(*net.UDPConn) error { return nil }

// arrivedAt knows no more than the address the socket is bound to.
func arrivedAt(_ []byte, bound netip.AddrPort) (netip.AddrPort, []byte) { return bound, nil }
