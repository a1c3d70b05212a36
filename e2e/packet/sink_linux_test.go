package packet

import (
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// sink is a backend that takes datagrams and answers none, so that sending many costs no more than one way.
type sink struct {
	endpoint
	name string

	mu   sync.Mutex
	came []time.Time
}

// Of a sink: its port, the room for what it has not read yet, and the first port that datagrams are scattered from.
const (
	sinkPort    = 9000
	sinkRoom    = 16 << 20
	scatterPort = 10000
)

// sinkPorts are those of a Service of sinks.
func sinkPorts() []port { return []port{{"udp", "UDP", 80, sinkPort}} }

// sinks makes so many, on two pods in turn, over IPv4.
func (w *world) sinks(t *testing.T, n int) []*sink {
	t.Helper()
	var out []*sink
	var ended atomic.Bool
	var running sync.WaitGroup
	for i := range n {
		p := []*pod{w.pod1, w.pod2}[i%2]
		at := p.another(t, 150+i)
		s := &sink{endpoint: endpoint{addr: at, node: p.node}, name: fmt.Sprintf("sink-%d", i)}
		fd := p.datagrams(t, netip.MustParseAddrPort(hostPort(at, sinkPort)))
		p.must(t, unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, sinkRoom))
		running.Go(func() { s.take(fd, &ended) })
		out = append(out, s)
	}
	t.Cleanup(func() { ended.Store(true); running.Wait() })
	return out
}

func (s *sink) take(fd int, ended *atomic.Bool) {
	defer unix.Close(fd)
	b := make([]byte, 64)
	for !ended.Load() {
		if _, err := unix.Read(fd, b); err != nil {
			continue // nothing has come for a while
		}
		s.mu.Lock()
		s.came = append(s.came, time.Now())
		s.mu.Unlock()
	}
}

// arrivals are when datagrams came so far.
func (s *sink) arrivals() []time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.came[:len(s.came):len(s.came)]
}

// arrived counts what came to each of some sinks, as soon as 99 of 100 of so many have: an emulated network may lose a few.
func arrived(t *testing.T, sinks []*sink, sent int) (each []int, total int) {
	t.Helper()
	poll(t, fmt.Sprintf("%d datagrams to arrive", sent), settleTimeout, func() error {
		each, total = nil, 0
		for _, s := range sinks {
			n := len(s.arrivals())
			each, total = append(each, n), total+n
		}
		if total < sent-sent/100 {
			return fmt.Errorf("%v have", each)
		}
		return nil
	})
	return each, total
}

// scatter sends a datagram from each of so many ports: to IPVS each is a connection.
func (p *pod) scatter(t *testing.T, to netip.AddrPort, n int) {
	t.Helper()
	source := p.source(to.Addr().String())
	err := p.do(func() error {
		for i := range n {
			if err := datagram(netip.AddrPortFrom(source, uint16(scatterPort+i)), to); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatalf("scatter datagrams: %v", err)
	}
}

// datagram sends one from a port, which is free again then.
func datagram(from, to netip.AddrPort) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.Bind(fd, sockaddr(from)); err != nil {
		return err
	}
	return unix.Sendto(fd, []byte("?"), 0, sockaddr(to))
}
