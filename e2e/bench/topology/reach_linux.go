package topology

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// opener waits for a change of endpoints by first packets of connections alone, and takes the time from the kernel when one of them comes to
// the endpoint. A whole request takes 5 ms under User-mode Linux, most of it in client and server: five times what kube-ipvs needs for a change
// there. The kernel of the pod, which knows of no connection, ends each with a reset.
type opener struct {
	send, see int // sockets: raw in the pod, of packets in the backends
	port      uint16
	packet    [ipSize + tcpSize]byte
	control   [64]byte // the time of one packet
}

// The pause between two connections is a tenth of the time waited so far, within these bounds.
const (
	shortestWait = time.Millisecond
	longestWait  = longestPause
)

func newOpener(pod, backends *Space) (*opener, error) {
	o := &opener{send: -1, see: -1}
	err := pod.Do(func() (err error) {
		o.send, err = unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
		return os.NewSyscallError("open a raw socket", err)
	})
	if err == nil {
		err = backends.Do(o.watch)
	}
	if err != nil {
		o.close()
		return nil, err
	}
	return o, nil
}

// watch sees nothing until it is told whom to see.
func (o *opener) watch() (err error) {
	if o.see, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0); err != nil {
		return os.NewSyscallError("open a packet socket", err)
	}
	const ip = unix.ETH_P_IP<<8&0xff00 | unix.ETH_P_IP>>8 // in network order
	return errors.Join(o.only(netip.IPv4Unspecified()), os.NewSyscallError("time packets", unix.SetsockoptInt(o.see, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1)),
		os.NewSyscallError("watch packets", unix.Bind(o.see, &unix.SockaddrLinklayer{Protocol: ip})))
}

func (o *opener) close() {
	for _, fd := range []int{o.send, o.see} {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
}

// Where things are in a packet without options (RFC 791, RFC 9293).
const (
	ipSize, ipProtocol, ipTo = 20, 9, 16
	tcpFlags, tcpSize        = 13, 20
	syn, ack                 = 0x02, 0x10
)

// only lets first packets of connections to one address come.
func (o *opener) only(to netip.Addr) error {
	code, err := bpf.Assemble([]bpf.Instruction{
		bpf.LoadAbsolute{Off: ipProtocol, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.IPPROTO_TCP, SkipTrue: 6},
		bpf.LoadAbsolute{Off: ipTo, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: binary.BigEndian.Uint32(to.AsSlice()), SkipTrue: 4},
		bpf.LoadAbsolute{Off: ipSize + tcpFlags, Size: 1},
		bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: syn | ack},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: syn, SkipTrue: 1},
		bpf.RetConstant{Val: ipSize + tcpSize},
		bpf.RetConstant{},
	})
	if err != nil {
		return fmt.Errorf("make a packet filter: %w", err)
	}
	filter := make([]unix.SockFilter, len(code))
	for i, c := range code {
		filter[i] = unix.SockFilter{Code: c.Op, Jt: c.Jt, Jf: c.Jf, K: c.K}
	}
	err = unix.SetsockoptSockFprog(o.see, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]})
	return os.NewSyscallError("choose packets", err)
}

// begin sends the first packet of a connection.
func (o *opener) begin(from netip.Addr, to netip.AddrPort) error {
	o.port++
	err := unix.Sendto(o.send, firstPacket(netip.AddrPortFrom(from, 1<<15|o.port), to), 0, &unix.SockaddrInet4{Addr: to.Addr().As4()})
	return os.NewSyscallError("begin a connection", err)
}

// firstPacket is a SYN; the kernel fills in what of the IP header is 0.
func firstPacket(from, to netip.AddrPort) []byte {
	p := make([]byte, ipSize+tcpSize)
	p[0], p[8], p[ipProtocol] = 4<<4|ipSize/4, 64, unix.IPPROTO_TCP
	copy(p[12:], from.Addr().AsSlice())
	copy(p[ipTo:], to.Addr().AsSlice())
	t := p[ipSize:]
	binary.BigEndian.PutUint16(t, from.Port())
	binary.BigEndian.PutUint16(t[2:], to.Port())
	binary.BigEndian.PutUint32(t[4:], uint32(from.Port())<<16)
	t[12], t[tcpFlags] = tcpSize/4<<4, syn
	binary.BigEndian.PutUint16(t[14:], 1<<15) // window
	binary.BigEndian.PutUint16(t[16:], checksum(p[12:ipSize], t))
	return p
}

// checksum is the checksum of TCP, over both addresses and the header (RFC 9293, section 3.1).
func checksum(addresses, header []byte) uint16 {
	sum := uint32(unix.IPPROTO_TCP) + uint32(len(header))
	for _, part := range [][]byte{addresses, header} {
		for i := 0; i < len(part); i += 2 {
			sum += uint32(binary.BigEndian.Uint16(part[i:]))
		}
	}
	for sum>>16 > 0 {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}

// arrived waits for a while for a packet to one address that has come since then, and returns when it came.
func (o *opener) arrived(to netip.Addr, since time.Time, wait time.Duration) (at time.Time, came bool, err error) {
	timeout := unix.NsecToTimespec(wait.Nanoseconds())
	n, err := unix.Ppoll([]unix.PollFd{{Fd: int32(o.see), Events: unix.POLLIN}}, &timeout, nil)
	if n == 0 || errors.Is(err, unix.EINTR) {
		return at, false, nil
	}
	if err != nil {
		return at, false, os.NewSyscallError("wait for a connection", err)
	}
	for {
		size, controls, _, _, err := unix.Recvmsg(o.see, o.packet[:], o.control[:], 0)
		if errors.Is(err, unix.EAGAIN) {
			return at, false, nil
		}
		if err != nil {
			return at, false, os.NewSyscallError("see a connection", err)
		}
		if size < ipTo+4 || netip.AddrFrom4([4]byte(o.packet[ipTo:])) != to {
			continue // to an endpoint that was awaited before
		}
		if at, err = received(o.control[:controls]); err != nil || !at.Before(since) {
			return at, err == nil, err
		}
	}
}

// received is when the kernel had a packet.
func received(control []byte) (time.Time, error) {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return time.Time{}, os.NewSyscallError("read the time of a packet", err)
	}
	for _, m := range messages {
		if m.Header.Level == unix.SOL_SOCKET && m.Header.Type == unix.SCM_TIMESTAMPNS && len(m.Data) >= 16 {
			return time.Unix(int64(binary.NativeEndian.Uint64(m.Data)), int64(binary.NativeEndian.Uint64(m.Data[8:]))), nil
		}
	}
	return time.Time{}, errors.New("a packet has no time")
}

// Reached begins connections to an address until one comes to an endpoint, and returns when its first packet did. The error is ErrNotInTime where the
// limit came first. One goroutine at a time may call it.
func (w *Network) Reached(ctx context.Context, to netip.AddrPort, endpoint netip.Addr, limit time.Duration) (time.Time, error) {
	if err := w.opener.only(endpoint); err != nil {
		return time.Time{}, err
	}
	for begun := time.Now(); ; {
		if err := errors.Join(ctx.Err(), w.opener.begin(w.Source(), to)); err != nil {
			return time.Now(), err
		}
		waited := time.Since(begun)
		at, came, err := w.opener.arrived(endpoint, begun, min(max(shortestWait, waited/10), longestWait))
		if came || err != nil {
			return at, err
		}
		if waited > limit {
			return time.Now(), fmt.Errorf("connect to %s for %s: %w", to, limit, ErrNotInTime)
		}
	}
}
