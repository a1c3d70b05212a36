package backend

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// A one-to-one SCTP socket behaves like a TCP socket. Package net cannot open one, but adopts it: it asks a file for its family
// and kind (a stream), not for its protocol. Deadlines, Accept and Close then work as everywhere.

func listenSCTP(address string) (net.Listener, error) {
	at, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		return nil, err
	}
	bind := at.AddrPort()
	if !bind.Addr().IsValid() {
		bind = netip.AddrPortFrom(netip.IPv6Unspecified(), bind.Port())
	}
	fd, err := openSCTP(bind.Addr())
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd) // the listener has a descriptor of its own
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		return nil, fmt.Errorf("set SO_REUSEADDR: %w", err)
	}
	if err := unix.Bind(fd, sockaddr(bind)); err != nil {
		return nil, fmt.Errorf("bind: %w", err)
	}
	if err := unix.Listen(fd, unix.SOMAXCONN); err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	return adopt(fd, net.FileListener)
}

// dialSCTP always binds. An unbound socket offers every address of the host as a second path, virtual addresses included, and
// a load balancer that translates one path breaks the others.
func dialSCTP(ctx context.Context, to netip.AddrPort, source netip.Addr) (net.Conn, error) {
	if !source.IsValid() {
		var err error
		if source, err = sourceFor(to); err != nil {
			return nil, fmt.Errorf("connect sctp %s: %w", to, err)
		}
	}
	fd, err := openSCTP(to.Addr())
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	if err := unix.Bind(fd, sockaddr(netip.AddrPortFrom(source, 0))); err != nil {
		return nil, fmt.Errorf("bind sctp %s: %w", source, err)
	}
	err = unix.Connect(fd, sockaddr(to))
	if errors.Is(err, unix.EINPROGRESS) {
		err = awaitConnected(ctx, fd)
	}
	if err != nil {
		return nil, fmt.Errorf("connect sctp %s: %w", to, err)
	}
	return adopt(fd, net.FileConn)
}

// sourceFor is the address the kernel would leave from. Connecting a UDP socket looks the route up and sends nothing.
func sourceFor(to netip.AddrPort) (netip.Addr, error) {
	socket, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(to))
	if err != nil {
		return netip.Addr{}, err
	}
	defer socket.Close()
	return addrPort(socket.LocalAddr()).Addr(), nil
}

func openSCTP(family netip.Addr) (int, error) {
	domain := unix.AF_INET6
	if family.Unmap().Is4() {
		domain = unix.AF_INET
	}
	fd, err := unix.Socket(domain, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.IPPROTO_SCTP)
	if err != nil {
		return -1, fmt.Errorf("open sctp socket: %w", err)
	}
	return fd, nil
}

// adopt has package net take the socket over. It works on duplicates, so fd stays the caller's to close.
func adopt[T any](fd int, from func(*os.File) (T, error)) (T, error) {
	var none T
	duplicate, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return none, fmt.Errorf("duplicate sctp socket: %w", err)
	}
	file := os.NewFile(uintptr(duplicate), "sctp")
	defer file.Close()
	return from(file)
}

// pollStep is how soon the end of a context without a deadline is noticed.
const pollStep = 100 * time.Millisecond

func awaitConnected(ctx context.Context, fd int) error {
	for ctx.Err() == nil {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, int(pollStep.Milliseconds()))
		if err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
		if n > 0 {
			return pendingError(fd)
		}
	}
	return ctx.Err()
}

// pendingError is how the connection attempt ended.
func pendingError(fd int) error {
	code, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err != nil {
		return err
	}
	if code != 0 {
		return unix.Errno(code)
	}
	return nil
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if address := a.Addr().Unmap(); address.Is4() {
		return &unix.SockaddrInet4{Addr: address.As4(), Port: int(a.Port())}
	}
	return &unix.SockaddrInet6{Addr: a.Addr().As16(), Port: int(a.Port())}
}
