package relay

import (
	"container/list"
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"
)

// flows are the clients of one UDP port, each with a socket of its own to its target.
type flows struct {
	port   *port
	socket *net.UDPConn

	mu       sync.Mutex
	targets  []netip.AddrPort // none once the socket is closed
	byClient map[netip.AddrPort]*list.Element
	recent   *list.List // of *flow, the latest used first
}

// flow is one client.
type flow struct {
	client, target netip.AddrPort
	conn           *net.UDPConn
}

func newFlows(p *port, socket *net.UDPConn) *flows {
	return &flows{port: p, socket: socket, byClient: map[netip.AddrPort]*list.Element{}, recent: list.New()}
}

// serve passes on datagrams of clients until the socket is closed. It returns any other error.
func (s *flows) serve() error {
	err := receive(s.socket, func(from netip.AddrPort, datagram []byte) {
		if f := s.find(from); f != nil {
			s.touch(f)
			if _, err := f.conn.Write(datagram); err != nil {
				_, _ = f.conn.Write(datagram) // the error was about the datagram before
			}
		}
	})
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// find returns the flow of a client, a new one if it has none; nil if it cannot have one.
func (s *flows) find(client netip.AddrPort) *flow {
	s.mu.Lock()
	at, known := s.byClient[client]
	if known {
		s.recent.MoveToFront(at)
	}
	s.mu.Unlock()
	if known {
		return at.Value.(*flow)
	}
	return s.begin(client)
}

// begin makes a flow. At the limit the flow that was used longest ago ends for it.
func (s *flows) begin(client netip.AddrPort) *flow {
	to := s.port.pick()
	if !to.IsValid() {
		return nil
	}
	if !s.port.take() {
		s.port.limited("the flow that was used longest ago ends for a new one")
		if !s.endOldest() || !s.port.take() {
			return nil
		}
	}
	conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(to))
	if err != nil {
		s.port.release()
		return nil
	}
	f := &flow{client, to, conn}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.byClient[client] = s.recent.PushFront(f)
	if !slices.Contains(s.targets, to) { // it went away meanwhile
		s.drop(f)
		return nil
	}
	s.port.relay.group.Go(func() { s.reply(f) })
	return f
}

// reply passes on the answers of the target until the flow ends.
func (s *flows) reply(f *flow) {
	_ = receive(f.conn, func(_ netip.AddrPort, datagram []byte) {
		s.touch(f)
		_, _ = s.socket.WriteToUDPAddrPort(datagram, f.client)
	})
	s.end(f)
}

// touch restarts the idle time of a flow.
func (s *flows) touch(f *flow) {
	_ = f.conn.SetReadDeadline(time.Now().Add(s.port.relay.opts.IdleUDP))
}

func (s *flows) end(f *flow) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(f)
}

// drop ends a flow; the caller holds the lock.
func (s *flows) drop(f *flow) {
	if at, there := s.byClient[f.client]; there && at.Value == f {
		delete(s.byClient, f.client)
		s.recent.Remove(at)
		_ = f.conn.Close()
		s.port.release()
	}
}

// endOldest reports whether there was a flow to end.
func (s *flows) endOldest() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	oldest := s.recent.Back()
	if oldest != nil {
		s.drop(oldest.Value.(*flow))
	}
	return oldest != nil
}

// keep ends the flows to all other targets.
func (s *flows) keep(targets []netip.AddrPort) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.targets = targets
	for at := s.recent.Front(); at != nil; {
		f := at.Value.(*flow)
		at = at.Next()
		if !slices.Contains(targets, f.target) {
			s.drop(f)
		}
	}
}

// buffers hold one datagram each. A socket that waits has none, because there may be thousands.
var buffers = sync.Pool{New: func() any { return new([1 << 16]byte) }}

// receive calls deliver for each datagram until the socket is closed or its deadline is over. An
// error about one datagram, such as a target that refuses it, does not end it.
func receive(socket *net.UDPConn, deliver func(from netip.AddrPort, datagram []byte)) error {
	raw, err := socket.SyscallConn()
	if err != nil {
		return err
	}
	for {
		err := raw.Read(func(fd uintptr) bool {
			buf := buffers.Get().(*[1 << 16]byte)
			defer buffers.Put(buf)
			n, from, err := syscall.Recvfrom(int(fd), buf[:], 0)
			if err == nil {
				deliver(addrPortOf(from), buf[:n])
			}
			return !errors.Is(err, syscall.EAGAIN)
		})
		if err != nil {
			return err
		}
	}
}

func addrPortOf(a syscall.Sockaddr) netip.AddrPort {
	switch a := a.(type) {
	case *syscall.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port))
	case *syscall.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(a.Addr), uint16(a.Port))
	default:
		return netip.AddrPort{}
	}
}
