package backend

import (
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
)

// wantLocal has the kernel tell each datagram's own destination. It does so for IPv4 too on the two-family socket that a
// wildcard address gives; a socket bound to one IPv4 address knows its destination anyway and refuses the option.
func wantLocal(socket *net.UDPConn) error {
	if addrPort(socket.LocalAddr()).Addr().Is4() {
		return nil
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return err
	}
	var refused error
	err = raw.Control(func(fd uintptr) {
		refused = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, 1)
	})
	if err != nil {
		return err
	}
	return refused
}

// arrivedAt reads a datagram's destination, and returns with it the control message that makes the
// answer leave from there. Without it a pod with several addresses answers from the wrong one, and
// the load balancer never sees the reply.
func arrivedAt(control []byte, bound netip.AddrPort) (local netip.AddrPort, source []byte) {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return bound, nil
	}
	for _, m := range messages {
		if m.Header.Level != unix.IPPROTO_IPV6 || m.Header.Type != unix.IPV6_PKTINFO || len(m.Data) < unix.SizeofInet6Pktinfo {
			continue
		}
		address := netip.AddrFrom16([16]byte(m.Data[:16]))
		return netip.AddrPortFrom(address.Unmap(), bound.Port()), unix.PktInfo6(&unix.Inet6Pktinfo{
			Addr: address.As16(), // no interface: the answer takes the route it finds
		})
	}
	return bound, nil
}
