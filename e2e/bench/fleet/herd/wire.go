package herd

import (
	"errors"
	"io"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// Ports of wires are below those that the kernel gives to connections (from 32768), so that none of these takes the place of a wire
// that is down, and above those of e2e/kube/cluster.
const firstPort, lastPort = 29_500, 32_500

// Wire is a way from one agent to the API server on which bytes are counted: those of TLS, as a network carries them, without the
// headers of TCP and IP. A wire that is down refuses connections, as a machine does whose API server does not run.
type Wire struct {
	addr, target string
	down, up     atomic.Int64 // bytes: to the agent, to the server
	buffers      chan []byte

	mu       sync.Mutex
	listener net.Listener // nil while the wire is down
	conns    map[net.Conn]bool
	accepted []time.Time
	closed   bool
}

// buffer is what a direction of a connection copies by.
const buffer = 16 << 10

// newWire is a wire at the first port from one on that is free. The buffers that it will need are made at once, and so belong to nobody
// whose memory is measured later.
func newWire(target string, port int) (*Wire, int, error) {
	w := &Wire{target: target, buffers: make(chan []byte, 4), conns: map[net.Conn]bool{}}
	for range cap(w.buffers) {
		w.buffers <- make([]byte, buffer)
	}
	var err error
	for ; port < lastPort; port++ {
		w.addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		if err = w.Open(); err == nil {
			return w, port + 1, nil
		}
	}
	return nil, port, errors.Join(errors.New("no port is free for a wire"), err)
}

// Open lets connections in again.
func (w *Wire) Open() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.listener != nil || w.closed {
		return nil
	}
	listener, err := net.Listen("tcp", w.addr)
	if err != nil {
		return err
	}
	w.listener = listener
	go w.serve(listener)
	return nil
}

// Shut refuses new connections; those that are there stay.
func (w *Wire) Shut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.listener != nil {
		_ = w.listener.Close()
		w.listener = nil
	}
}

// Cut ends the connections that are there, as a load balancer does that fails.
func (w *Wire) Cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.conns {
		_ = c.Close()
	}
}

// Close ends the wire for good.
func (w *Wire) Close() {
	w.Shut()
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.Cut()
}

// Bytes are those so far, to the agent and to the server.
func (w *Wire) Bytes() (down, up int64) { return w.down.Load(), w.up.Load() }

// Accepted is when connections came, and forgets it.
func (w *Wire) Accepted() []time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := w.accepted
	w.accepted = nil
	return out
}

func (w *Wire) serve(listener net.Listener) {
	for {
		agent, err := listener.Accept()
		if err != nil {
			return
		}
		w.mu.Lock()
		w.accepted = append(w.accepted, time.Now())
		w.mu.Unlock()
		go w.join(agent)
	}
}

func (w *Wire) join(agent net.Conn) {
	server, err := net.Dial("tcp", w.target)
	if err != nil {
		_ = agent.Close()
		return
	}
	w.keep(agent, server)
	var both sync.WaitGroup
	both.Go(func() { w.copy(server, agent, &w.up) })
	both.Go(func() { w.copy(agent, server, &w.down) })
	both.Wait()
	w.mu.Lock()
	delete(w.conns, agent)
	delete(w.conns, server)
	w.mu.Unlock()
}

func (w *Wire) keep(conns ...net.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range conns {
		if w.conns[c] = true; w.closed {
			_ = c.Close()
		}
	}
}

// copy goes on until either side ends, and ends both.
func (w *Wire) copy(to, from net.Conn, count *atomic.Int64) {
	defer to.Close()
	defer from.Close()
	var b []byte
	select {
	case b = <-w.buffers:
		defer func() { w.buffers <- b }()
	default:
		b = make([]byte, buffer)
	}
	// A plain Writer and Reader: what TCP connections do among themselves would use no buffer, and count at the end alone.
	_, _ = io.CopyBuffer(counter{to, count}, struct{ io.Reader }{from}, b) // how a connection ends is the agent's business
}

type counter struct {
	to    io.Writer
	count *atomic.Int64
}

// Write implements io.Writer.
func (c counter) Write(b []byte) (int, error) {
	n, err := c.to.Write(b)
	c.count.Add(int64(n))
	return n, err
}
