package backend

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
)

// Config has the addresses to listen on, each field ":8080" or "ADDR:PORT", empty for not at all. TCP and HTTP may name the same address:
// the first line of a connection tells them apart.
type Config struct {
	Name                 string
	TCP, HTTP, UDP, SCTP string
}

// Server answers on the sockets that Listen opened.
type Server struct {
	name    string
	streams map[Proto]net.Listener // TCP, HTTP and SCTP; two names may share a listener
	udp     *net.UDPConn

	mu    sync.Mutex
	conns map[net.Conn]bool // open connections, closed when serving ends; nil from then on
}

// Listen opens all sockets of the config. From its return on the kernel accepts connections and keeps datagrams.
func Listen(c Config) (*Server, error) {
	s := &Server{name: c.Name, streams: map[Proto]net.Listener{}, conns: map[net.Conn]bool{}}
	err := errors.Join(s.listenTCP(TCP, c.TCP), s.listenSCTP(c.SCTP), s.listenUDP(c.UDP))
	if c.HTTP != "" && c.HTTP == c.TCP {
		s.streams[HTTP] = s.streams[TCP]
	} else {
		err = errors.Join(err, s.listenTCP(HTTP, c.HTTP))
	}
	if err == nil && len(s.streams) == 0 && s.udp == nil {
		err = errors.New("nowhere to listen: give at least one address")
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *Server) listenTCP(proto Proto, address string) error {
	if address == "" {
		return nil
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("listen for %s: %w", proto, err)
	}
	s.streams[proto] = l
	return nil
}

func (s *Server) listenSCTP(address string) error {
	if address == "" {
		return nil
	}
	l, err := listenSCTP(address)
	if err != nil {
		return fmt.Errorf("listen for sctp on %s: %w", address, err)
	}
	s.streams[SCTP] = l
	return nil
}

func (s *Server) listenUDP(address string) error {
	if address == "" {
		return nil
	}
	socket, err := net.ListenPacket("udp", address)
	if err != nil {
		return fmt.Errorf("listen for udp: %w", err)
	}
	s.udp = socket.(*net.UDPConn)
	return wantLocal(s.udp)
}

// Addr is where the server listens for proto, the zero value if it does not.
func (s *Server) Addr(proto Proto) netip.AddrPort {
	if proto == UDP && s.udp != nil {
		return addrPort(s.udp.LocalAddr())
	}
	if l := s.streams[proto]; l != nil {
		return addrPort(l.Addr())
	}
	return netip.AddrPort{}
}

// Serve answers until ctx ends, then closes every socket and returns nil. An error means that a socket broke before that.
func (s *Server) Serve(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var running sync.WaitGroup
	for _, l := range s.listeners() {
		running.Go(func() { cancel(s.accept(l, &running)) })
	}
	if s.udp != nil {
		running.Go(func() { cancel(s.answerDatagrams()) })
	}
	<-ctx.Done()
	cause := context.Cause(ctx)
	s.close()
	running.Wait()
	if errors.Is(cause, context.Canceled) || errors.Is(cause, context.DeadlineExceeded) {
		return nil
	}
	return cause
}

// listeners are the distinct ones.
func (s *Server) listeners() []net.Listener {
	var out []net.Listener
	for proto, l := range s.streams {
		if proto != HTTP || l != s.streams[TCP] {
			out = append(out, l)
		}
	}
	return out
}

func (s *Server) accept(l net.Listener, running *sync.WaitGroup) error {
	for {
		conn, err := l.Accept()
		if err != nil {
			return err
		}
		if !s.keep(conn) {
			return net.ErrClosed
		}
		running.Go(func() {
			defer s.drop(conn)
			s.talk(conn)
		})
	}
}

// keep registers an open connection, and closes it when serving is over.
func (s *Server) keep(conn net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conns == nil {
		conn.Close()
		return false
	}
	s.conns[conn] = true
	return true
}

func (s *Server) drop(conn net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, conn)
	conn.Close()
}

func (s *Server) close() {
	for _, l := range s.listeners() {
		l.Close()
	}
	if s.udp != nil {
		s.udp.Close()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for conn := range s.conns {
		conn.Close()
	}
	s.conns = nil
}

// talk answers each line of a connection with one line, and an HTTP request with a response and the
// end of the connection. A load balancer chooses for each connection, so a client that reused one
// would hide the choice.
func (s *Server) talk(conn net.Conn) {
	reply := Reply{Name: s.name, Local: addrPort(conn.LocalAddr()), Client: addrPort(conn.RemoteAddr())}.String() + "\n"
	in := bufio.NewReader(conn)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		if isHTTP(line) {
			if skipHeader(in) == nil {
				fmt.Fprintf(conn, httpOK, len(reply), reply)
			}
			return
		}
		if _, err := io.WriteString(conn, reply); err != nil {
			return
		}
	}
}

const httpOK = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s"

func isHTTP(requestLine string) bool { return strings.Contains(requestLine, " HTTP/1.") }

// skipHeader reads up to and including the empty line.
func skipHeader(in *bufio.Reader) error {
	for {
		line, err := in.ReadString('\n')
		if err != nil || strings.TrimSpace(line) == "" {
			return err
		}
	}
}

func (s *Server) answerDatagrams() error {
	var data, control [512]byte
	for {
		_, n, _, from, err := s.udp.ReadMsgUDPAddrPort(data[:], control[:])
		if errors.Is(err, net.ErrClosed) {
			return err
		}
		if err != nil {
			continue // an ICMP error for an earlier answer; the next datagram has nothing to do with it
		}
		local, source := arrivedAt(control[:n], addrPort(s.udp.LocalAddr()))
		reply := Reply{Name: s.name, Local: local, Client: unmap(from)}.String() + "\n"
		_, _, _ = s.udp.WriteMsgUDPAddrPort([]byte(reply), source, from) // a client that is gone needs no answer
	}
}
