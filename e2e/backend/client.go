package backend

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"time"
)

// Ask makes one request over a connection (for UDP: a socket) of its own. A valid source is the address it leaves from. The
// deadline of ctx covers everything; without one a lost UDP datagram would be waited for without end.
func Ask(ctx context.Context, proto Proto, to netip.AddrPort, source netip.Addr) (Reply, error) {
	conn, err := Dial(ctx, proto, to, source)
	if err != nil {
		return Reply{}, err
	}
	defer conn.Close()
	return conn.Ask(ctx)
}

// Conn is an open connection, or a UDP socket, to whichever backend was chosen for it. One goroutine at a time may use it.
type Conn struct {
	proto Proto
	to    netip.AddrPort
	conn  net.Conn
	in    *bufio.Reader

	opened time.Time
}

// Dial opens a connection. For UDP nothing is sent yet.
func Dial(ctx context.Context, proto Proto, to netip.AddrPort, source netip.Addr) (*Conn, error) {
	conn, err := dial(ctx, proto, to, source)
	if err != nil {
		return nil, err
	}
	return &Conn{proto: proto, to: to, conn: conn, in: bufio.NewReader(conn), opened: time.Now()}, nil
}

func dial(ctx context.Context, proto Proto, to netip.AddrPort, source netip.Addr) (net.Conn, error) {
	var d net.Dialer
	switch proto {
	case SCTP:
		return dialSCTP(ctx, to, source)
	case UDP:
		if source.IsValid() {
			d.LocalAddr = net.UDPAddrFromAddrPort(netip.AddrPortFrom(source, 0))
		}
		return d.DialContext(ctx, "udp", to.String())
	default:
		if source.IsValid() {
			d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(source, 0))
		}
		return d.DialContext(ctx, "tcp", to.String())
	}
}

// Ask makes one request. It may be called again, except over HTTP, where the answer ends the connection.
func (c *Conn) Ask(ctx context.Context) (Reply, error) {
	stop := c.obey(ctx)
	defer stop()
	line, err := c.exchange()
	if err != nil {
		return Reply{}, fmt.Errorf("ask %s %s: %w", c.proto, c.to, err)
	}
	return ParseReply(line)
}

// obey makes the connection's reads and writes end with ctx.
func (c *Conn) obey(ctx context.Context) (stop func() bool) {
	deadline, _ := ctx.Deadline() // the zero time means none
	_ = c.conn.SetDeadline(deadline)
	return context.AfterFunc(ctx, func() { _ = c.conn.SetDeadline(time.Unix(1, 0)) })
}

func (c *Conn) exchange() (string, error) {
	request := "ask\n"
	if c.proto == HTTP {
		request = "GET / HTTP/1.1\r\nHost: " + c.to.String() + "\r\nConnection: close\r\n\r\n"
	}
	if _, err := io.WriteString(c.conn, request); err != nil {
		return "", err
	}
	if c.proto == HTTP {
		if err := c.skipStatus(); err != nil {
			return "", err
		}
	}
	return c.in.ReadString('\n')
}

func (c *Conn) skipStatus() error {
	status, err := c.in.ReadString('\n')
	if err != nil {
		return err
	}
	if !strings.Contains(status, " 200 ") {
		return fmt.Errorf("http status %q", strings.TrimSpace(status))
	}
	return skipHeader(c.in)
}

// LocalAddr is the address and port the connection leaves from.
func (c *Conn) LocalAddr() netip.AddrPort { return addrPort(c.conn.LocalAddr()) }

// Close ends the connection in the protocol's own orderly way.
func (c *Conn) Close() error { return c.conn.Close() }

// Reset ends a TCP connection at once, by a reset: no kernel on the way keeps it for minutes, as it does one that was closed.
func (c *Conn) Reset() error {
	conn, ok := c.conn.(*net.TCPConn)
	if !ok {
		return fmt.Errorf("reset a connection by %s: TCP alone has that", c.proto)
	}
	return errors.Join(conn.SetLinger(0), conn.Close())
}

// Failure is how a request ended that got no answer.
type Failure string

// The kinds a test tells apart: a rejected packet, a lost one, a cut connection, and what should never happen.
const (
	Refused Failure = "refused" // no process listens, or a firewall rejected it
	Timeout Failure = "timeout" // no answer in time
	Reset   Failure = "reset"   // the other side ended the connection without an answer
	Denied  Failure = "denied"  // the sender's own kernel threw the packet away: EPERM
	Other   Failure = "other"   // no route, a garbled answer
)

// Failures lists them all.
func Failures() []Failure { return []Failure{Refused, Timeout, Reset, Denied, Other} }

// FailureOf sorts an error of Ask or Dial into its kind.
func FailureOf(err error) Failure {
	var network net.Error
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return Refused
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return Reset
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded), errors.Is(err, syscall.ETIMEDOUT),
		errors.As(err, &network) && network.Timeout():
		return Timeout
	case errors.Is(err, syscall.EPERM):
		return Denied
	default:
		return Other
	}
}
