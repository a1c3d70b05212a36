package healthcheck_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/kube-ipvs/kube-ipvs/internal/healthcheck"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// network is a network in memory whose sockets can be refused and can break.
type network struct {
	mu     sync.Mutex
	busy   map[string]error // by address
	open   map[string]*socket
	opened map[string]int // how often each was tried
	told   []string       // by Options.Failed
}

func newNetwork() *network {
	return &network{busy: map[string]error{}, open: map[string]*socket{}, opened: map[string]int{}}
}

func (n *network) failed(id model.ServiceID, address netip.AddrPort, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.told = append(n.told, fmt.Sprintf("%s %s: %v", id, address, err))
}

func (n *network) Listen(_ context.Context, _, address string) (net.Listener, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.opened[address]++
	if err := n.busy[address]; err != nil {
		return nil, err
	}
	if n.open[address] != nil {
		return nil, syscall.EADDRINUSE
	}
	s := &socket{net: n, address: address, conns: make(chan net.Conn), fate: make(chan error, 1), closed: make(chan struct{})}
	n.open[address] = s
	return s, nil
}

func (n *network) refuse(address string, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.busy[address] = err
}

func (n *network) tries(address string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.opened[address]
}

// dial connects to an address, or returns nil if there is no listener.
func (n *network) dial(address string) net.Conn {
	n.mu.Lock()
	s := n.open[address]
	n.mu.Unlock()
	if s == nil {
		return nil
	}
	client, server := net.Pipe()
	s.conns <- server
	return client
}

// socket listens in the network.
type socket struct {
	net     *network
	address string
	conns   chan net.Conn
	fate    chan error
	once    sync.Once
	closed  chan struct{}
}

func (s *socket) Accept() (net.Conn, error) {
	select {
	case c := <-s.conns:
		return c, nil
	case err := <-s.fate:
		return nil, err
	case <-s.closed:
		return nil, net.ErrClosed
	}
}

func (s *socket) Close() error {
	s.once.Do(func() {
		close(s.closed)
		s.net.mu.Lock()
		defer s.net.mu.Unlock()
		delete(s.net.open, s.address)
	})
	return nil
}

func (s *socket) Addr() net.Addr { return &net.TCPAddr{} }

const a80, b81 = "192.0.2.1:80", "192.0.2.1:81"

var nodeAddr = []netip.Addr{netip.MustParseAddr("192.0.2.1")}

// bubble runs a test in a time of its own, where every goroutine has to end.
func bubble(t *testing.T, healthy func() bool, f func(*testing.T, *healthcheck.Servers, *network, *observer.ObservedLogs)) {
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.InfoLevel)
		n := newNetwork()
		s := healthcheck.New(zap.New(core), healthcheck.Options{Listen: n.Listen, Healthy: healthy, Failed: n.failed})
		s.Listen(nodeAddr, false)
		defer run(t, s)()
		f(t, s, n, logs)
	})
}

func status(t *testing.T, s *healthcheck.Servers, want ...healthcheck.PortStatus) {
	t.Helper()
	synctest.Wait()
	if diff := cmp.Diff(want, s.Status(), byValue); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
}

func broken(id model.ServiceID, address, reason string) healthcheck.PortStatus {
	return healthcheck.PortStatus{Address: netip.MustParseAddrPort(address), Service: id, Ready: 1, Error: reason}
}

func TestAPortThatCannotBeOpenedIsTriedAgain(t *testing.T) {
	bubble(t, nil, func(t *testing.T, s *healthcheck.Servers, n *network, logs *observer.ObservedLogs) {
		n.refuse(a80, syscall.EADDRINUSE)
		s.Set(web, one(80))
		s.Set(api, one(81))
		good := row(netip.MustParseAddrPort(b81), api, 1)
		status(t, s, broken(web, a80, "listen on 192.0.2.1:80: address already in use"), good)

		h := one(80)
		h.IPv4.Ready = 2 // a change of the count is no reason to knock
		s.Set(web, h)
		s.Set(web, one(80))
		status(t, s, broken(web, a80, "listen on 192.0.2.1:80: address already in use"), good)
		if n.tries(a80) != 1 {
			t.Errorf("%d tries, want 1", n.tries(a80))
		}

		time.Sleep(6 * time.Second) // the second try is over
		n.refuse(a80, syscall.EACCES)
		time.Sleep(5 * time.Second)
		status(t, s, broken(web, a80, "listen on 192.0.2.1:80: permission denied"), good)
		n.refuse(a80, nil)
		time.Sleep(5 * time.Second)
		status(t, s, row(netip.MustParseAddrPort(a80), web, 1), good)
		if n.tries(a80) != 4 || n.tries(b81) != 1 {
			t.Errorf("%d and %d tries, want 4 and 1", n.tries(a80), n.tries(b81))
		}

		var warned []any
		for _, e := range logs.FilterLevelExact(zap.WarnLevel).All() {
			m := e.ContextMap()
			warned = append(warned, m["reason"], m["service"], m["attempt"])
		}
		want := []any{
			"FailedToStartServiceHealthcheck", "shop/web", int64(1),
			"FailedToStartServiceHealthcheck", "shop/web", int64(3), // another reason
		}
		if diff := cmp.Diff(want, warned); diff != "" {
			t.Errorf("warnings (-want +got):\n%s", diff)
		}
		told := []string{"shop/web 192.0.2.1:80: listen on 192.0.2.1:80: address already in use", "shop/web 192.0.2.1:80: listen on 192.0.2.1:80: permission denied"}
		if diff := cmp.Diff(told, n.told); diff != "" {
			t.Errorf("told (-want +got):\n%s", diff)
		}
	})
}

func TestAPortNobodyWantsIsNotTriedAgain(t *testing.T) {
	bubble(t, nil, func(t *testing.T, s *healthcheck.Servers, n *network, _ *observer.ObservedLogs) {
		n.refuse(a80, syscall.EADDRINUSE)
		s.Set(web, one(80))
		synctest.Wait()
		s.Set(web, model.HealthCheck{})
		time.Sleep(time.Minute)
		status(t, s)
		if n.tries(a80) != 1 {
			t.Errorf("%d tries, want 1", n.tries(a80))
		}
	})
}

func TestWhatIsSaidTwiceChangesNothing(t *testing.T) {
	bubble(t, nil, func(t *testing.T, s *healthcheck.Servers, n *network, _ *observer.ObservedLogs) {
		for range 2 {
			s.Listen(append(nodeAddr, nodeAddr...), false)
			s.Set(web, one(80))
			s.Set(api, model.HealthCheck{Port: 81}) // of no family
			status(t, s, row(netip.MustParseAddrPort(a80), web, 1))
		}
		if n.tries(a80) != 1 || n.tries(b81) != 0 {
			t.Errorf("opened %d and %d times, want 1 and 0", n.tries(a80), n.tries(b81))
		}
	})
}

func TestASocketThatBreaksIsReplaced(t *testing.T) {
	bubble(t, nil, func(t *testing.T, s *healthcheck.Servers, n *network, _ *observer.ObservedLogs) {
		s.Set(web, one(80))
		status(t, s, row(netip.MustParseAddrPort(a80), web, 1))
		n.open[a80].fate <- errors.New("gone")
		status(t, s, broken(web, a80, "gone"))
		time.Sleep(5 * time.Second)
		status(t, s, row(netip.MustParseAddrPort(a80), web, 1))
		c := n.dial(a80)
		defer c.Close()
		if r := talk(t, c, "GET / HTTP/1.1"); r.status != 200 {
			t.Errorf("status %d", r.status)
		}
	})
}

func TestRequestsUnderWayEnd(t *testing.T) {
	for _, tt := range []struct {
		name  string
		takes time.Duration
		close func(s *healthcheck.Servers)
		cut   bool
	}{
		{"service gone", 500 * time.Millisecond, func(s *healthcheck.Servers) { s.Set(web, model.HealthCheck{}) }, false},
		{"port changed", 500 * time.Millisecond, func(s *healthcheck.Servers) { s.Set(web, one(81)) }, false},
		{"address gone", 500 * time.Millisecond, func(s *healthcheck.Servers) { s.Listen(nil, false) }, false},
		{"too long", 2 * time.Second, func(s *healthcheck.Servers) { s.Set(web, model.HealthCheck{}) }, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			slow := func() bool { time.Sleep(tt.takes); return true }
			bubble(t, slow, func(t *testing.T, s *healthcheck.Servers, n *network, _ *observer.ObservedLogs) {
				s.Set(web, one(80))
				synctest.Wait()
				c := n.dial(a80)
				defer c.Close()
				if _, err := c.Write([]byte("GET / HTTP/1.1\r\nHost: node\r\n\r\n")); err != nil {
					t.Fatal(err)
				}
				synctest.Wait() // until the handler has it
				tt.close(s)
				synctest.Wait()
				if n.dial(a80) != nil {
					t.Error("the port is still open")
				}
				count, err := c.Read(make([]byte, 1024))
				if cut := count == 0 && err != nil; cut != tt.cut {
					t.Errorf("read %d bytes, error %v; cut off: want %t", count, err, tt.cut)
				}
				time.Sleep(tt.takes) // only the handler can end itself
			})
		})
	}
}

// A client that sends nothing does not keep its connection, nor does one that has
// nothing more to say.
func TestSilentClients(t *testing.T) {
	for _, tt := range []struct {
		name  string
		says  string
		after time.Duration
	}{
		{"half a request", "GET / HTTP/1.1\r\n", 5 * time.Second},
		{"idle after an answer", "GET / HTTP/1.1\r\nHost: node\r\n\r\n", 2 * time.Minute},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, nil, func(t *testing.T, s *healthcheck.Servers, n *network, _ *observer.ObservedLogs) {
				s.Set(web, one(80))
				synctest.Wait()
				c := n.dial(a80)
				defer c.Close()
				if _, err := c.Write([]byte(tt.says)); err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				for buf := make([]byte, 1024); ; {
					if _, err := c.Read(buf); err != nil {
						break
					}
				}
				if took := time.Since(began); took != tt.after {
					t.Errorf("closed after %s, want %s", took, tt.after)
				}
			})
		})
	}
}
