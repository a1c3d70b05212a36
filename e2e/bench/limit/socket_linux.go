package main

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// patience is how long the kernel may take for one send.
const patience = 30 // seconds

// socket is a netlink socket of the namespace it was opened in.
type socket struct {
	fd    int
	reply []byte
}

// dial opens a socket. An answer does not echo what was asked, so that many of them fit into its buffer.
func dial(protocol int) (*socket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, protocol)
	if err != nil {
		return nil, fmt.Errorf("open netlink socket: %w", err)
	}
	wait := unix.Timeval{Sec: patience}
	for _, set := range []func() error{
		func() error { return unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait) },
		func() error { return unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &wait) },
		func() error { return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, 4*maxSend) },
		func() error { return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 4*maxSend) },
		func() error { return unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_CAP_ACK, 1) },
		func() error { return unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}) },
	} {
		if err := set(); err != nil {
			_ = unix.Close(fd)
			return nil, fmt.Errorf("set up netlink socket: %w", err)
		}
	}
	return &socket{fd, make([]byte, 64<<10)}, nil
}

func (s *socket) Close() error { return unix.Close(s.fd) }

// write sends everything and waits for the answer of each send. It goes on after a refusal, as the kernel does, and returns the first.
func (s *socket) write(sends []send) error {
	var refused error
	for _, part := range sends {
		if err := unix.Sendto(s.fd, part.bytes, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
			return fmt.Errorf("send %d messages: %w", part.messages, err)
		}
		no, err := s.settle(part.last)
		if err != nil {
			return fmt.Errorf("answer to %d messages: %w", part.messages, err)
		}
		if refused == nil {
			refused = no
		}
	}
	return refused
}

// settle reads answers until that of the last message, and returns the first refusal.
func (s *socket) settle(last uint32) (refused, err error) {
	for {
		n, _, err := unix.Recvfrom(s.fd, s.reply, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, err
		}
		done, no, err := answers(s.reply[:n], last)
		if refused == nil {
			refused = no
		}
		if done || err != nil {
			return refused, err
		}
	}
}

// answers reads one datagram: whether the answer to the last message is in it, and the first refusal.
func answers(b []byte, last uint32) (done bool, refused, err error) {
	for len(b) >= headerLen+4 {
		length := int(native.Uint32(b))
		if length < headerLen+4 || length > len(b) {
			return done, refused, fmt.Errorf("a message of length %d in %d bytes", length, len(b))
		}
		if kind := native.Uint16(b[4:]); kind != ackType {
			return done, refused, fmt.Errorf("a message of type %d instead of an answer", kind)
		}
		seq := native.Uint32(b[seqAt:])
		if code := int32(native.Uint32(b[headerLen:])); code != 0 && refused == nil {
			refused = fmt.Errorf("message %d was refused: %w", seq, unix.Errno(-code))
		}
		done = done || seq == last
		b = b[min((length+3)&^3, len(b)):]
	}
	return done, refused, nil
}
