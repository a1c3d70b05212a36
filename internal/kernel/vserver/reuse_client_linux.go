package vserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// replyTimeout outlasts the repeat of a lost first packet, after one second.
const replyTimeout = 2500 * time.Millisecond

// reply is what became of one connection.
type reply struct {
	answered bool // a server told its name within replyTimeout
	name     byte
	lost     bool // it took more than one first packet
}

// dialFrom opens a connection from a chosen source port, reads the name of the
// server, and waits until both sides have ended. An error means that the attempt
// could not be made; an attempt that fails is a reply.
func dialFrom(ctx context.Context, from, to netip.AddrPort) (reply, error) {
	dialer := net.Dialer{
		LocalAddr: net.TCPAddrFromAddrPort(from),
		Timeout:   replyTimeout,
		Control:   func(_, _ string, c syscall.RawConn) error { return control(c, reuseAddress) },
	}
	for {
		conn, err := dialer.DialContext(ctx, "tcp4", to.String())
		switch {
		case err == nil:
			return converse(conn.(*net.TCPConn))
		case ctx.Err() != nil:
			return reply{}, ctx.Err()
		// The kernel still takes the last connection down.
		case errors.Is(err, unix.EADDRNOTAVAIL), errors.Is(err, unix.EADDRINUSE):
			if err := pause(ctx, 5*time.Millisecond); err != nil {
				return reply{}, err
			}
		case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, unix.ECONNREFUSED), errors.Is(err, unix.ECONNRESET),
			errors.Is(err, unix.ETIMEDOUT):
			return reply{lost: true}, nil
		default:
			return reply{}, err
		}
	}
}

// converse lets the server end the connection first, so that this side keeps no
// TIME_WAIT and the port is free at once; IPVS and connection tracking have one
// in either case.
func converse(conn *net.TCPConn) (r reply, err error) {
	raw, err := conn.SyscallConn()
	if err == nil {
		err = control(raw, func(fd int) error {
			info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
			if err == nil {
				r.lost = info.Total_retrans > 0
			}
			return err
		})
	}
	if err == nil {
		err = conn.SetReadDeadline(time.Now().Add(replyTimeout))
	}
	if err == nil {
		text, failed := io.ReadAll(conn)
		if r.answered = failed == nil && len(text) == 1; r.answered {
			r.name = text[0]
		}
	}
	return r, errors.Join(err, conn.Close())
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func reuseAddress(fd int) error {
	return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
}

func control(c syscall.RawConn, use func(fd int) error) error {
	var failed error
	err := c.Control(func(fd uintptr) { failed = use(int(fd)) })
	return errors.Join(err, failed)
}

// namedServer answers each connection with its name and ends it.
type namedServer struct {
	listener net.Listener
	done     chan struct{}
}

// listenNamed starts a server in the namespace of the calling thread.
func listenNamed(ctx context.Context, addr netip.Addr, name byte) (*namedServer, error) {
	var config net.ListenConfig
	config.SetMultipathTCP(false)
	listener, err := config.Listen(ctx, "tcp4", netip.AddrPortFrom(addr, reusePort).String())
	if err != nil {
		return nil, fmt.Errorf("start a server: %w", err)
	}
	s := &namedServer{listener: listener, done: make(chan struct{})}
	go func() {
		defer close(s.done)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write([]byte{name})
			_ = conn.Close()
		}
	}()
	return s, nil
}

func (s *namedServer) close() {
	_ = s.listener.Close()
	<-s.done
}
