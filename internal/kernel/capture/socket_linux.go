package capture

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// receiveBuffer holds some thousand packets that wait to be read.
const receiveBuffer = 1 << 20

// Socket gives packets of the network namespace of the thread that opened it. One
// goroutine at a time uses it.
type Socket struct {
	file  *os.File
	raw   syscall.RawConn
	buf   []byte
	links map[int]string
	stats Stats
}

// Open begins to watch. It takes CAP_NET_RAW.
func Open(f Filter) (*Socket, error) {
	if err := f.Check(); err != nil {
		return nil, fmt.Errorf("watch packets: %w", err)
	}
	code, err := bpf.Assemble(program(f))
	if err != nil {
		return nil, fmt.Errorf("make a packet filter: %w", err)
	}
	// Of protocol 0, so that nothing comes before the filter is there.
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open a packet socket: %w", err)
	}
	s := &Socket{file: os.NewFile(uintptr(fd), "packets"), buf: make([]byte, keep), links: map[int]string{}}
	if err := attach(fd, code); err != nil {
		s.Close()
		return nil, fmt.Errorf("watch packets: %w", err)
	}
	if s.raw, err = s.file.SyscallConn(); err != nil {
		s.Close()
		return nil, fmt.Errorf("watch packets: %w", err)
	}
	return s, nil
}

// attach puts the filter in place and lets packets of all links come.
func attach(fd int, code []bpf.RawInstruction) error {
	filter := make([]unix.SockFilter, len(code))
	for i, c := range code {
		filter[i] = unix.SockFilter{Code: c.Op, Jt: c.Jt, Jf: c.Jf, K: c.K}
	}
	err := unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]})
	if err != nil {
		return fmt.Errorf("attach a filter of %d instructions: %w", len(filter), err)
	}
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, receiveBuffer) // the size that it gets is enough
	const all = unix.ETH_P_ALL<<8 | unix.ETH_P_ALL>>8                          // in network order
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all & 0xffff}); err != nil {
		return fmt.Errorf("bind: %w", err)
	}
	return nil
}

// Next waits for a packet; when the context is over it fails with its error. Packets that cannot be
// decoded are skipped.
func (s *Socket) Next(ctx context.Context) (Packet, error) {
	stop := context.AfterFunc(ctx, func() { _ = s.file.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	for {
		if ctx.Err() != nil {
			return Packet{}, ctx.Err()
		}
		n, from, err := s.receive()
		switch {
		case err != nil && ctx.Err() != nil:
			return Packet{}, ctx.Err()
		case err != nil:
			return Packet{}, fmt.Errorf("read packets: %w", err)
		}
		if p, ok := s.packet(n, from); ok {
			return p, nil
		}
	}
}

// Queued gives a packet that has come already, without waiting, also once the context of
// Next was over; ok is false if there is none.
func (s *Socket) Queued() (p Packet, ok bool, err error) {
	for !ok {
		var n int
		var from unix.Sockaddr
		var failed error
		err = s.raw.Control(func(fd uintptr) { n, from, failed = unix.Recvfrom(int(fd), s.buf, unix.MSG_DONTWAIT) })
		switch {
		case errors.Is(failed, unix.EAGAIN):
			return Packet{}, false, nil
		case err != nil || failed != nil:
			return Packet{}, false, fmt.Errorf("read packets that wait: %w", errors.Join(err, failed))
		}
		if l, isLink := from.(*unix.SockaddrLinklayer); isLink {
			p, ok = s.packet(n, *l)
		}
	}
	return p, true, nil
}

// packet reads what was received; ok is false for what is cut short.
func (s *Socket) packet(n int, from unix.SockaddrLinklayer) (p Packet, ok bool) {
	p, err := decode(s.buf[:n])
	p.Link, p.Direction = s.link(from.Ifindex), direction(from.Pkttype)
	return p, err == nil
}

func (s *Socket) receive() (n int, from unix.SockaddrLinklayer, err error) {
	var failed error
	err = s.raw.Read(func(fd uintptr) bool {
		var sender unix.Sockaddr
		n, sender, failed = unix.Recvfrom(int(fd), s.buf, 0)
		if l, ok := sender.(*unix.SockaddrLinklayer); ok {
			from = *l
		}
		return failed != unix.EAGAIN
	})
	return n, from, errors.Join(err, os.NewSyscallError("recvfrom", failed))
}

func direction(kind uint8) Direction {
	switch kind {
	case unix.PACKET_OUTGOING:
		return Out
	case unix.PACKET_OTHERHOST:
		return Passing
	}
	return In
}

// link is the name of a link, as it was when it was seen first.
func (s *Socket) link(index int) string {
	name, known := s.links[index]
	if !known {
		if l, err := net.InterfaceByIndex(index); err == nil {
			name = l.Name
		}
		s.links[index] = name
	}
	return name
}

// Stats asks the kernel for what was lost.
func (s *Socket) Stats() (Stats, error) {
	var stats *unix.TpacketStats
	var failed error
	err := s.raw.Control(func(fd uintptr) {
		stats, failed = unix.GetsockoptTpacketStats(int(fd), unix.SOL_PACKET, unix.PACKET_STATISTICS)
	})
	if err = errors.Join(err, failed); err != nil {
		return s.stats, fmt.Errorf("read the count of lost packets: %w", err)
	}
	// Asking sets the kernel's counters to zero.
	s.stats.Passed += uint64(stats.Packets)
	s.stats.Lost += uint64(stats.Drops)
	return s.stats, nil
}

// Close ends it.
func (s *Socket) Close() { _ = s.file.Close() }
