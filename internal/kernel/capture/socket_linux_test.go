package capture_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/capture"
	"github.com/kube-ipvs/kube-ipvs/internal/testkit/poll"
)

// neighbours are two network namespaces with a link between them. The test's thread is
// in the first, and is never given back.
type neighbours struct{ there netns.NsHandle }

const (
	here, there   = "192.0.2.1", "192.0.2.2"
	here6, there6 = "2001:db8::1", "2001:db8::2"
)

func newNeighbours(t *testing.T) neighbours {
	t.Helper()
	runtime.LockOSThread()
	other, err := netns.New()
	if err != nil {
		t.Skipf("needs a network namespace of its own: %v", err)
	}
	t.Cleanup(func() { _ = other.Close() })
	own, err := netns.New() // and we are in it
	must(t, err)
	t.Cleanup(func() { _ = own.Close() })
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "near0"
	must(t, netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "far0", PeerNamespace: netlink.NsFd(other)}))
	far, err := netlink.NewHandleAt(other)
	must(t, err)
	defer far.Close()
	near, err := netlink.NewHandle()
	must(t, err)
	defer near.Close()
	up(t, near, "near0", here+"/24", here6+"/64")
	up(t, far, "far0", there+"/24", there6+"/64")
	return neighbours{other}
}

func up(t *testing.T, h *netlink.Handle, name string, prefixes ...string) {
	t.Helper()
	l, err := h.LinkByName(name)
	must(t, err)
	for _, p := range prefixes {
		a, err := netlink.ParseAddr(p)
		must(t, err)
		a.Flags = unix.IFA_F_NODAD
		must(t, h.AddrAdd(l, a))
	}
	must(t, h.LinkSetUp(l))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// dial connects from the other namespace; a refusal is an answer like any other.
func (n neighbours) dial(t *testing.T, network, to string, send bool) {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		done <- func() error {
			if err := netns.Set(n.there); err != nil {
				return err
			}
			c, err := net.DialTimeout(network, to, 5*time.Second)
			if errors.Is(err, unix.ECONNREFUSED) {
				return nil
			}
			if err != nil {
				return err
			}
			defer c.Close()
			if send {
				_, err = c.Write([]byte("question"))
			}
			return err
		}()
	}()
	must(t, <-done)
}

func open(t *testing.T, protocol uint8, endpoints ...string) *capture.Socket {
	t.Helper()
	f := capture.Filter{Protocol: protocol}
	for _, e := range endpoints {
		f.Endpoints = append(f.Endpoints, netip.MustParseAddrPort(e))
	}
	s, err := capture.Open(f)
	if errors.Is(err, os.ErrPermission) {
		t.Skipf("packet sockets need CAP_NET_RAW: %v", err)
	}
	must(t, err)
	t.Cleanup(s.Close)
	return s
}

func next(t *testing.T, s *capture.Socket) capture.Packet {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), poll.Patience)
	defer cancel()
	p, err := s.Next(ctx)
	if err != nil {
		t.Fatalf("Next: %v", err)
	}
	return p
}

// Real packets: a refused connection, and a datagram without a receiver.
func TestCapture(t *testing.T) {
	for _, tt := range []struct{ name, here, there string }{{"IPv4", here, there}, {"IPv6", here6, there6}} {
		t.Run(tt.name, func(t *testing.T) {
			n := newNeighbours(t)
			at := func(addr, port string) string { return net.JoinHostPort(addr, port) }

			s := open(t, capture.TCP, at(tt.here, "80"), at(tt.here, "8080"))
			n.dial(t, "tcp", at(tt.here, "81"), false) // not asked for
			n.dial(t, "tcp", at(tt.here, "80"), false)
			syn, reset := next(t, s), next(t, s)
			if syn.Direction != capture.In || syn.Link != "near0" || syn.Flags != capture.SYN || syn.Dst.String() != at(tt.here, "80") || syn.Src.Addr().String() != tt.there {
				t.Errorf("%+v is not the SYN", syn)
			}
			if reset.Direction != capture.Out || reset.Link != "near0" || reset.Flags != capture.RST|capture.ACK || reset.Src != syn.Dst || reset.Dst != syn.Src {
				t.Errorf("%+v is not the reset", reset)
			}
			wantStats(t, s, 2)

			s = open(t, capture.UDP, at(tt.here, "53"))
			n.dial(t, "udp", at(tt.here, "53"), true)
			question, refusal := next(t, s), next(t, s)
			if question.Direction != capture.In || question.Protocol != capture.UDP || question.Dst.String() != at(tt.here, "53") {
				t.Errorf("%+v is not the question", question)
			}
			if refusal.Direction != capture.Out || refusal.Refusal != "port unreachable" || refusal.Of == nil || refusal.Of.Src != question.Src || refusal.Of.Dst != question.Dst {
				t.Errorf("%+v is not the refusal", refusal)
			}
			wantStats(t, s, 2)
		})
	}
}

func wantStats(t *testing.T, s *capture.Socket, passed uint64) {
	t.Helper()
	for range 2 { // asking resets no counter
		if got, err := s.Stats(); err != nil || got != (capture.Stats{Passed: passed}) {
			t.Errorf("%+v, %v; want %d passed", got, err, passed)
		}
	}
}

// Nothing comes, and the waiting ends with the context.
func TestNextEnds(t *testing.T) {
	newNeighbours(t)
	s := open(t, capture.TCP, here+":80")
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	if _, err := s.Next(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Next: %v, want %v", err, context.Canceled)
	}
}

// Packets that arrived before the end are not lost.
func TestQueued(t *testing.T) {
	n := newNeighbours(t)
	s := open(t, capture.TCP, here+":80")
	n.dial(t, "tcp", here+":80", false)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Next(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Next: %v, want %v", err, context.Canceled)
	}
	for i, want := range []capture.Direction{capture.In, capture.Out} {
		if p, ok, err := s.Queued(); err != nil || !ok || p.Direction != want || p.Link != "near0" {
			t.Errorf("packet %d: %+v, %t, %v; want one going %s", i, p, ok, err, want)
		}
	}
	if p, ok, err := s.Queued(); ok || err != nil {
		t.Errorf("%+v, %t, %v; want none", p, ok, err)
	}
}

// Packets that are not read are counted, and their number is bounded.
func TestLossIsCounted(t *testing.T) {
	n := newNeighbours(t)
	s := open(t, capture.UDP, here+":53")
	const packets = 8000
	done, found := make(chan error, 1), make(chan struct{})
	go func() {
		runtime.LockOSThread()
		done <- func() error {
			if err := netns.Set(n.there); err != nil {
				return err
			}
			c, err := net.Dial("udp", here+":53")
			if err != nil {
				return err
			}
			defer c.Close()
			for i := range packets {
				if _, err := c.Write(make([]byte, 1000)); err != nil && !errors.Is(err, unix.ECONNREFUSED) {
					return err
				}
				if i == 0 {
					<-found // the neighbour: until then the kernel keeps few packets
				}
			}
			return nil
		}()
	}()
	ctx, cancel := context.WithTimeout(t.Context(), poll.Patience)
	defer cancel()
	if _, err := s.Next(ctx); err != nil {
		t.Fatal(err)
	}
	close(found)
	must(t, <-done)
	got, err := s.Stats()
	if err != nil || got.Lost == 0 || got.Lost >= got.Passed {
		t.Errorf("%+v, %v; want some of %d lost, and not all", got, err, packets)
	}
}
