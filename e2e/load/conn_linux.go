package load

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kube-ipvs/kube-ipvs/e2e/backend"
)

// errNoPort means that each port of the range is in use.
var errNoPort = errors.New("no source port of the range is free")

// dial opens a socket of the n-th client and has it connect. On an error the connection is there to be told about, without a socket.
func (e *engine) dial(n int, ranged bool) (*conn, error) {
	c := &conn{fd: -1, long: -1, began: e.now}
	client := 0
	if len(e.Sources) > 0 {
		client = n % len(e.Sources)
	}
	tries := 1
	if ranged {
		tries = max(1, e.Ports.count())
	}
	for range tries {
		port := uint16(0)
		if ranged && e.Ports.count() > 0 {
			port = e.Ports.First + uint16(e.turns[client]%e.Ports.count())
			e.turns[client]++
		}
		err := e.open(c, client, port)
		if errors.Is(err, unix.EADDRINUSE) || errors.Is(err, unix.EADDRNOTAVAIL) && port != 0 {
			continue // the next port
		}
		if err != nil {
			return c, err
		}
		e.keep(c)
		return c, e.watch(c)
	}
	return c, errNoPort
}

// open makes the socket. A connection that comes at once is as well as one under way.
func (e *engine) open(c *conn, client int, port uint16) error {
	family := unix.AF_INET6
	if e.To.Addr().Is4() {
		family = unix.AF_INET
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
	if err != nil {
		return fmt.Errorf("open socket: %w", err)
	}
	if err := e.bind(fd, client, port); err != nil {
		unix.Close(fd)
		return err
	}
	if e.Reset {
		_ = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	}
	saveACK(fd)
	if err := unix.Connect(fd, e.to); err != nil && !errors.Is(err, unix.EINPROGRESS) {
		err = fmt.Errorf("connect from %s: %w", localAddr(fd), err)
		unix.Close(fd)
		return err
	}
	c.fd = fd
	return nil
}

// saveACK delays the next acknowledgement so that it goes with the next data, if that is soon.
// Packets are slow on emulated kernels, and without it three of ten carry no data. It holds for the
// next few packets only.
func saveACK(fd int) { _ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_QUICKACK, 0) }

// bind gives the socket its client's address, and its port if there is a range. Without one the port is chosen when it connects:
// then all ports can be used to each destination.
func (e *engine) bind(fd, client int, port uint16) error {
	from := netip.AddrPortFrom(netip.IPv6Unspecified(), port)
	switch {
	case len(e.Sources) > 0:
		from = netip.AddrPortFrom(e.Sources[client], port)
	case port == 0:
		return nil
	case e.To.Addr().Is4():
		from = netip.AddrPortFrom(netip.IPv4Unspecified(), port)
	}
	option := unix.SO_REUSEADDR
	level := unix.SOL_SOCKET
	if port == 0 {
		level, option = unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT // of both families
	}
	if err := unix.SetsockoptInt(fd, level, option, 1); err != nil {
		return fmt.Errorf("prepare to bind: %w", err)
	}
	if err := unix.Bind(fd, sockaddr(from)); err != nil {
		return fmt.Errorf("bind to %s: %w", from, err)
	}
	return nil
}

// keep gives the connection a slot, and its request a deadline.
func (e *engine) keep(c *conn) {
	if n := len(e.free); n > 0 {
		c.slot, e.free = e.free[n-1], e.free[:n-1]
		e.slots[c.slot] = c
	} else {
		c.slot = int32(len(e.slots))
		e.slots = append(e.slots, c)
	}
	e.expect(c)
}

func (e *engine) watch(c *conn) error {
	event := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLRDHUP | unix.EPOLLET, Fd: c.slot}
	if err := unix.EpollCtl(e.epoll, unix.EPOLL_CTL_ADD, c.fd, &event); err != nil {
		return fmt.Errorf("watch socket: %w", err)
	}
	return nil
}

// drop closes the connection's socket and gives its slot back, which is used again no earlier than all events of this turn are
// done.
func (e *engine) drop(c *conn) {
	if c.pending {
		c.pending = false
		e.pending--
	}
	if c.fd < 0 {
		return
	}
	// A process that another thread is starting has a copy of the socket until it runs its program,
	// and a socket that is open in any process keeps causing events.
	_ = unix.EpollCtl(e.epoll, unix.EPOLL_CTL_DEL, c.fd, nil) // one that is not there was never watched
	unix.Close(c.fd)
	c.fd = -1
	e.slots[c.slot] = nil
	e.free = append(e.free, c.slot)
}

// happened goes on with a connection whose socket has news.
func (e *engine) happened(event unix.EpollEvent) {
	c := e.slots[event.Fd]
	if !c.asked {
		e.send(c)
	}
	if c.fd >= 0 && c.asked && event.Events&^unix.EPOLLOUT != 0 {
		e.receive(c)
	}
}

var question = []byte("ask\n")

// send asks. A socket that could not connect fails here.
func (e *engine) send(c *conn) {
	saveACK(c.fd)
	switch _, err := unix.Write(c.fd, question); {
	case err == nil:
		c.asked = true
	case !errors.Is(err, unix.EAGAIN):
		e.failed(c, err)
	}
}

// receive reads what there is: the answer, or the end of the connection.
func (e *engine) receive(c *conn) {
	var data [512]byte
	for c.fd >= 0 {
		n, err := unix.Read(c.fd, data[:])
		switch {
		case errors.Is(err, unix.EAGAIN):
			return
		case err != nil:
			e.failed(c, err)
		case n == 0:
			e.failed(c, io.ErrUnexpectedEOF)
		default:
			e.heard(c, data[:n])
		}
	}
}

// heard takes a piece of an answer; its first has the name, as a reply is written at once.
func (e *engine) heard(c *conn, data []byte) {
	if !c.pending {
		e.failed(c, fmt.Errorf("an unexpected answer: %q", data))
		return
	}
	if c.by == nil {
		name, _, ok := bytes.Cut(data, []byte(" "))
		if !ok {
			e.failed(c, fmt.Errorf("answer %q: want a name first", data))
			return
		}
		c.by = e.named(name)
	}
	if data[len(data)-1] == '\n' {
		e.answered(c)
	}
}

// named is the row of a backend.
func (e *engine) named(name []byte) *answers {
	by := e.names[string(name)]
	if by == nil {
		by = &answers{name: string(name)}
		e.names[by.name] = by
	}
	return by
}

func (e *engine) answered(c *conn) {
	took := e.now - c.began
	if c.long < 0 {
		row := e.second(c.began)
		row.OK++
		row.Worst = max(row.Worst, took)
		e.report.OK++
		c.by.n++
		e.drop(c)
		return
	}
	c.pending = false
	e.pending--
	r := &e.report.Long.Conns[c.long]
	if r.Answers == 0 {
		r.Backend = c.by.name
		e.report.Long.Opened++
		e.report.Long.Alive++
	}
	r.Answers++
	e.report.Long.Answers++
	r.Worst = max(r.Worst, took)
}

// failed ends a connection that got no answer, or was cut.
func (e *engine) failed(c *conn, err error) {
	kind := backend.FailureOf(err)
	what := Incident{At: time.Now(), Err: e.explain(c, err)}
	again := resent(c.fd)
	e.drop(c)
	if c.long >= 0 {
		r := &e.report.Long.Conns[c.long]
		r.Failure, r.Cut = kind, what
		e.report.Long.Failed[kind]++
		if r.Answers > 0 {
			e.report.Long.Alive--
		}
		return
	}
	e.report.Failed[kind]++
	if again {
		e.report.Resent++
	}
	e.second(c.began).Failed++
	if _, had := e.report.First[kind]; !had {
		e.report.First[kind] = what
	}
}

// explain names both ends, and how long it went well.
func (e *engine) explain(c *conn, err error) error {
	if c.fd < 0 {
		return fmt.Errorf("to %s: %w", e.To, err)
	}
	step := "connect"
	if c.asked {
		step = "wait for an answer"
	}
	return fmt.Errorf("%s from %s to %s, begun %s before: %w", step, localAddr(c.fd), e.To, (e.now - c.began).Round(time.Millisecond), err)
}

func localAddr(fd int) netip.AddrPort {
	name, err := unix.Getsockname(fd)
	if err != nil {
		return netip.AddrPort{}
	}
	switch a := name.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(a.Addr), uint16(a.Port))
	}
	return netip.AddrPort{}
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Addr: a.Addr().As4(), Port: int(a.Port())}
	}
	return &unix.SockaddrInet6{Addr: a.Addr().As16(), Port: int(a.Port())}
}

// resent reports whether a packet of a connection was sent more than once.
func resent(fd int) bool {
	if fd < 0 {
		return false
	}
	info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	return err == nil && info.Total_retrans > 0
}
