package traffic

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// relay is the network between an agent and its API server: it passes bytes on, or keeps them, or is not there.
type relay struct {
	to string // where the API server is

	mu     sync.Mutex
	open   chan struct{} // closed while bytes pass
	conns  map[net.Conn]bool
	wanted sync.WaitGroup
}

// newRelay passes what arrives at a listener on to an address, until the test ends.
func newRelay(t *testing.T, l net.Listener, to string) *relay {
	r := &relay{to: to, open: make(chan struct{}), conns: map[net.Conn]bool{}}
	close(r.open)
	ctx, cancel := context.WithCancel(context.Background())
	r.wanted.Go(func() { r.accept(ctx, l) })
	t.Cleanup(func() {
		cancel()
		_ = l.Close()
		r.reset()
		r.heal()
		r.wanted.Wait()
	})
	return r
}

// partition makes the network swallow everything. Connections stay, new ones begin, and nothing gets through, as
// when a firewall drops packets, or a router has died.
func (r *relay) partition() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open = make(chan struct{})
}

// heal ends a partition; connections go on where they were.
func (r *relay) heal() {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-r.open:
	default:
		close(r.open)
	}
}

// reset cuts every connection.
func (r *relay) reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for c := range r.conns {
		_ = c.Close()
	}
}

func (r *relay) accept(ctx context.Context, l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return // the listener was closed
		}
		r.wanted.Go(func() { r.serve(ctx, c) })
	}
}

// serve joins one connection to one of its own. A server that is not there shows as a reset.
func (r *relay) serve(ctx context.Context, near net.Conn) {
	defer r.drop(near)
	r.keep(near)
	r.await(ctx)
	var dialer net.Dialer
	far, err := dialer.DialContext(ctx, "tcp", r.to)
	if err != nil {
		_ = near.(*net.TCPConn).SetLinger(0)
		return
	}
	defer r.drop(far)
	r.keep(far)
	done := make(chan struct{}, 2)
	for _, way := range [][2]net.Conn{{near, far}, {far, near}} {
		go func() {
			r.pass(ctx, way[1], way[0])
			done <- struct{}{}
		}()
	}
	<-done // either end is gone: so is the other
	r.drop(near)
	r.drop(far)
	<-done
}

func (r *relay) pass(ctx context.Context, to io.Writer, from io.Reader) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		r.await(ctx)
		if _, werr := to.Write(buf[:n]); errors.Join(err, werr) != nil {
			return
		}
	}
}

// await returns when bytes may pass.
func (r *relay) await(ctx context.Context) {
	r.mu.Lock()
	open := r.open
	r.mu.Unlock()
	select {
	case <-open:
	case <-ctx.Done():
	}
}

func (r *relay) keep(c net.Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.conns[c] = true
}

func (r *relay) drop(c net.Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.conns, c)
	_ = c.Close()
}

// TestRelay shows what a client of each kind of network sees; it needs no kernel of its own.
func TestRelay(t *testing.T) {
	far, port := echo(t), listen(t)
	r := newRelay(t, port, far.Addr().String())
	c := dial(t, port)
	say(t, c, "hello")
	r.partition()
	if _, err := c.Write([]byte("lost?")); err != nil {
		t.Error(err)
	}
	during := dial(t, port)
	if got := hear(during, 50*time.Millisecond); got != "" {
		t.Errorf("through a partition came %q", got)
	}
	r.heal()
	if got := hear(c, 10*time.Second); got != "lost?" {
		t.Errorf("after the partition came %q, want what was sent during it", got)
	}
	say(t, during, "late")
	r.reset()
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("a connection that was reset goes on")
	}
	_ = far.Close()
	if err := refused(port); err == nil {
		t.Error("a relay without a target answered")
	}
}

// refused dials and reads; a reset may show in either.
func refused(l net.Listener) error {
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.Read(make([]byte, 1))
	return err
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func echo(t *testing.T) net.Listener {
	l := listen(t)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c) }()
		}
	}()
	return l
}

func dial(t *testing.T, l net.Listener) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func say(t *testing.T, c net.Conn, text string) {
	t.Helper()
	if _, err := fmt.Fprint(c, text); err != nil {
		t.Error(err)
	}
	if got := hear(c, 10*time.Second); got != text {
		t.Errorf("sent %q, heard %q", text, got)
	}
}

func hear(c net.Conn, limit time.Duration) string {
	_ = c.SetReadDeadline(time.Now().Add(limit))
	buf := make([]byte, 100)
	n, _ := c.Read(buf)
	return string(buf[:n])
}
