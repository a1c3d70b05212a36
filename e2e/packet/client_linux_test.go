package packet

import (
	"context"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kube-ipvs/kube-ipvs/e2e/backend"
)

// The protocols that a virtual server has.
var protos = []backend.Proto{backend.TCP, backend.UDP, backend.SCTP}

// spoken are those of them that this kernel's sockets speak.
func spoken() []backend.Proto {
	if kernelHasSCTP() {
		return protos
	}
	return slices.DeleteFunc(slices.Clone(protos), func(p backend.Proto) bool { return p == backend.SCTP })
}

// families are the two, by the number in their name.
var families = []int{4, 6}

// serve has a pod answer on a port, in every protocol that the kernel has and in both families, until the test ends. It answers with its name, and the port if that
// is not the usual one.
func (p *pod) serve(t *testing.T, port int) {
	t.Helper()
	for _, family := range families {
		at, name := hostPort(p.addr.of(family), port), p.name
		if port != 8080 {
			name += ":" + strconv.Itoa(port)
		}
		c := backend.Config{Name: name, TCP: at, HTTP: at, UDP: at, SCTP: at}
		if !kernelHasSCTP() {
			c.SCTP = ""
		}
		serve(t, p.space, c)
	}
}

// serve answers until the test ends.
func serve(t *testing.T, s *space, c backend.Config) { _ = open(t, s, c) }

// open answers until the test ends or the function that it returns is called: then it closes its sockets, and so cuts what is
// connected to them.
func open(t *testing.T, s *space, c backend.Config) func() {
	t.Helper()
	var server *backend.Server
	err := s.do(func() (err error) {
		server, err = backend.Listen(c)
		return err
	})
	if err != nil {
		t.Fatalf("serve in %s: %v", s.name, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Serve(ctx) }()
	end := sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("backend %s: %v", c.Name, err)
		}
	})
	t.Cleanup(end)
	return end
}

// endpoints lists the addresses of pods, as the slices of a Service do.
func endpoints(pods ...*pod) []endpoint {
	var out []endpoint
	for _, p := range pods {
		for _, family := range families {
			out = append(out, endpoint{addr: p.addr.of(family), node: p.node})
		}
	}
	return out
}

func hostPort(addr string, port int) string {
	if strings.Contains(addr, ":") {
		addr = "[" + addr + "]"
	}
	return addr + ":" + strconv.Itoa(port)
}

// Time limits of one request. A refusal is quick; patience is for answers, which are slow under emulation, and silence is what
// a test waits for when it wants to see none.
const (
	patience = 10 * time.Second
	silence  = 2 * time.Second
)

// ask makes requests one after the other, each over a connection of its own, from the pod's address of that family.
func (p *pod) ask(proto backend.Proto, addr string, port, n int) *backend.Tally {
	return p.askFor(patience, proto, addr, port, n)
}

func (p *pod) askFor(limit time.Duration, proto backend.Proto, addr string, port, n int) *backend.Tally {
	return p.askUntil(limit, proto, addr, port, n, func(*backend.Tally) bool { return false })
}

// askUntil makes requests until there are enough, at most n.
func (p *pod) askUntil(limit time.Duration, proto backend.Proto, addr string, port, n int, enough func(*backend.Tally) bool) *backend.Tally {
	to, source := netip.MustParseAddrPort(hostPort(addr, port)), p.source(addr)
	tally := &backend.Tally{}
	err := p.do(func() error {
		for asked := 0; asked < n && !enough(tally); asked++ {
			if asked >= fewest { // another client may take turns with this one, step by step
				time.Sleep(rand.N(time.Millisecond))
			}
			tally.Add(once(limit, proto, to, source))
		}
		return nil
	})
	if err != nil {
		tally.Add(backend.Reply{}, err)
	}
	return tally
}

func once(limit time.Duration, proto backend.Proto, to netip.AddrPort, source netip.Addr) (backend.Reply, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	return backend.Ask(ctx, proto, to, source)
}

// source is the address to ask from: the pod's own, which matters where one namespace holds several pods. The host leaves it
// to the kernel.
func (p *pod) source(to string) netip.Addr {
	family := 4
	if strings.Contains(to, ":") {
		family = 6
	}
	addr, _ := netip.ParseAddr(p.addr.of(family))
	return addr
}

// text prints a tally for a failure message.
func text(tally *backend.Tally) string {
	var b strings.Builder
	_ = tally.Print(&b)
	return b.String()
}
