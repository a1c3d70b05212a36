package packet

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kube-ipvs/kube-ipvs/e2e/backend"
)

// prober sends requests at a high rate to an address that must not answer, and counts answers. It
// never waits for one: each request has a socket of its own, which is looked at once so many later
// ones have been sent.
type prober struct {
	name     string
	asked    int // so many requests; to be read when it has ended
	answered atomic.Int64

	proto       backend.Proto
	to          []unix.Sockaddr // in turn
	from        unix.Sockaddr
	family      int
	outstanding []int // sockets, the oldest first
	took        time.Duration
	cancel      context.CancelFunc
	done        sync.WaitGroup
}

// Pace of a prober: 500 requests a second, if the machine can; each has the time of 100 more to be answered.
const (
	probePause   = 2 * time.Millisecond
	probesWaited = 100
)

// probe starts asking so many ports from one up, in turn, from the pod's address.
func (p *pod) probe(t *testing.T, proto backend.Proto, addr string, port, ports int) *prober {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	b := &prober{name: fmt.Sprintf("%s %s %s", p.name, proto, addr), proto: proto, cancel: cancel, family: unix.AF_INET6}
	to := netip.MustParseAddr(addr)
	if to.Is4() {
		b.family = unix.AF_INET
	}
	for i := range ports {
		b.to = append(b.to, sockaddr(netip.AddrPortFrom(to, uint16(port+i))))
	}
	b.from = sockaddr(netip.AddrPortFrom(p.source(addr), 0))
	b.done.Go(func() {
		start := time.Now()
		if err := p.do(func() error { return b.run(ctx) }); err != nil {
			t.Errorf("%s: %v", b.name, err)
		}
		b.took = time.Since(start)
	})
	t.Cleanup(b.end)
	return b
}

func (b *prober) run(ctx context.Context) error {
	defer func() {
		for len(b.outstanding) > 0 {
			b.collect()
		}
	}()
	tick := time.NewTicker(probePause)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := b.send(); err != nil {
			return err
		}
		if len(b.outstanding) > probesWaited {
			b.collect()
		}
	}
}

// send makes one request without waiting for anything.
func (b *prober) send() error {
	kind := unix.SOCK_STREAM
	if b.proto == backend.UDP {
		kind = unix.SOCK_DGRAM
	}
	fd, err := unix.Socket(b.family, kind|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open socket: %w", err)
	}
	b.outstanding = append(b.outstanding, fd)
	if err := unix.Bind(fd, b.from); err != nil {
		return fmt.Errorf("bind: %w", err)
	}
	_ = unix.Connect(fd, b.to[b.asked%len(b.to)]) // a TCP one is under way, and a refusal is no answer
	if b.proto == backend.UDP {
		_, _ = unix.Write(fd, []byte("ask\n"))
	}
	b.asked++
	return nil
}

// collect looks whether the oldest request was answered.
func (b *prober) collect() {
	fd := b.outstanding[0]
	b.outstanding = b.outstanding[1:]
	defer unix.Close(fd)
	if b.proto == backend.UDP {
		if n, err := unix.Read(fd, make([]byte, 512)); err == nil && n > 0 {
			b.answered.Add(1)
		}
		return
	}
	if _, err := unix.Getpeername(fd); err == nil {
		b.answered.Add(1)
	}
}

func (b *prober) end() {
	b.cancel()
	b.done.Wait()
}

// rate is how many requests a second it made.
func (b *prober) rate() float64 { return float64(b.asked) / b.took.Seconds() }

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Addr: a.Addr().As4(), Port: int(a.Port())}
	}
	return &unix.SockaddrInet6{Addr: a.Addr().As16(), Port: int(a.Port())}
}

// TestProberSeesAnswers: a prober that counts no answers of a working address would make every test
// of it pass.
func TestProberSeesAnswers(t *testing.T) {
	t.Parallel()
	needKernel(t)
	s := newSpace(t, "alone")
	serve(t, s, backend.Config{Name: "here", TCP: "127.0.0.1:80", UDP: "127.0.0.1:80"})
	self := &pod{space: s, name: "self", addr: pair{v4: "127.0.0.1"}}
	for _, proto := range []backend.Proto{backend.TCP, backend.UDP} {
		b := self.probe(t, proto, "127.0.0.1", 80, 1)
		poll(t, "the prober to collect answers", settleTimeout, func() error {
			if b.answered.Load() == 0 {
				return fmt.Errorf("no answer")
			}
			return nil
		})
		b.end()
	}
}
