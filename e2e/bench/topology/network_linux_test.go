package topology_test

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/kube-ipvs/kube-ipvs/e2e/backend"
	"github.com/kube-ipvs/kube-ipvs/e2e/bench/topology"
	"github.com/kube-ipvs/kube-ipvs/internal/testkit/poll"
)

func newNetwork(t *testing.T, ports ...int) *topology.Network {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root for namespaces of its own")
	}
	w, err := topology.New(t.Context(), ports...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	return w
}

var vip = netip.MustParseAddrPort("10.96.0.10:80")

// carry makes the node's rules send a Service to an endpoint.
func carry(t *testing.T, w *topology.Network, to netip.Addr) {
	t.Helper()
	if _, err := exec.LookPath("iptables"); err != nil {
		t.Skip("needs iptables to carry a Service")
	}
	err := w.Node.Shell(t.Context(), "iptables -w 20 -t nat -F PREROUTING; iptables -w 20 -t nat -A PREROUTING -d 10.96.0.10 -p tcp --dport 80 -j DNAT --to-destination "+netip.AddrPortFrom(to, topology.BackendPort).String())
	if err != nil {
		t.Fatal(err)
	}
}

func TestEndpointsAnswerByTheirAddress(t *testing.T) {
	w := newNetwork(t, 6443)
	err := w.Inside(func() error {
		for _, i := range []int{0, 255, 99_999, 500_000} {
			from, err := w.Ask(t.Context(), netip.AddrPortFrom(topology.Endpoint(i), topology.BackendPort))
			if err != nil || from != topology.Endpoint(i) {
				t.Errorf("endpoint %d answers as %s, %v, want %s", i, from, err, topology.Endpoint(i))
			}
		}
		if _, err := w.Ask(t.Context(), netip.MustParseAddrPort(topology.BackendsAddr+":6443")); err != nil {
			t.Errorf("the port that was asked for: %v", err)
		}
		if _, err := w.Ask(t.Context(), vip); backend.FailureOf(err) != backend.Refused {
			t.Errorf("a Service that no proxy serves: %v, want it refused at once", err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestUntil(t *testing.T) {
	w := newNetwork(t)
	old, added := topology.Endpoint(1), topology.Endpoint(2)
	if _, err := w.Until(t.Context(), vip, netip.Addr{}, 20*time.Millisecond); !errors.Is(err, topology.ErrNotInTime) {
		t.Errorf("a Service that no proxy serves: %v, want ErrNotInTime", err)
	}
	carry(t, w, old)
	if _, err := w.Until(t.Context(), vip, netip.Addr{}, time.Minute); err != nil {
		t.Error(err)
	}
	becomes(t, w, added, w.Until)
}

// becomes checks that wait returns when an endpoint has taken the place of another, and not before.
func becomes(t *testing.T, w *topology.Network, added netip.Addr, wait func(context.Context, netip.AddrPort, netip.Addr, time.Duration) (time.Time, error)) {
	t.Helper()
	if _, err := wait(t.Context(), vip, added, 20*time.Millisecond); !errors.Is(err, topology.ErrNotInTime) {
		t.Errorf("the endpoint that is not there yet: %v, want ErrNotInTime", err)
	}
	changed := make(chan time.Time, 1)
	go func() {
		defer close(changed)
		before := time.Now()
		carry(t, w, added)
		changed <- before
	}()
	at, err := wait(t.Context(), vip, added, time.Minute)
	if before, ok := <-changed; err != nil || !ok || at.Before(before) {
		t.Errorf("the new endpoint is seen at %s, %v, before it was there (%s)", at, err, before)
	}
}

// TestUntilOutlivesALostPacket throws packets away until after the first question.
func TestUntilOutlivesALostPacket(t *testing.T) {
	w := newNetwork(t)
	carry(t, w, topology.Endpoint(1))
	lose := func(add string) {
		err := w.Node.Shell(t.Context(), "iptables -w 20 -t mangle "+add+" PREROUTING -p tcp --dport 80 --syn -j DROP")
		if err != nil {
			t.Fatal(err)
		}
	}
	lose("-A")
	answered := make(chan time.Time, 1)
	go func() {
		at, err := w.Until(t.Context(), vip, netip.Addr{}, poll.Patience)
		if err != nil {
			t.Error(err)
		}
		answered <- at
	}()
	lose("-D")
	free := time.Now()
	t.Logf("the answer came %s after it could", (<-answered).Sub(free))
}

func TestAll(t *testing.T) {
	w := newNetwork(t)
	unserved := netip.MustParseAddrPort("10.96.0.11:80")
	carry(t, w, topology.Endpoint(1))
	never := func() error { return nil }
	answered := false
	for limit := 50 * time.Millisecond; !answered && limit < poll.Patience; limit *= 3 { // a busy machine needs longer
		at, err := w.All(t.Context(), []netip.AddrPort{unserved, vip}, limit, never)
		if err != nil || !at[0].IsZero() {
			t.Fatalf("answers at %v, %v, want one of the second only", at, err)
		}
		answered = !at[1].IsZero()
	}
	if !answered {
		t.Error("the second address has not answered")
	}
	ended := errors.New("the candidate ended")
	if _, err := w.All(t.Context(), []netip.AddrPort{unserved}, time.Minute, func() error { return ended }); !errors.Is(err, ended) {
		t.Errorf("error is %v, want that of done", err)
	}
}

func TestSourcesDiffer(t *testing.T) {
	w := &topology.Network{}
	pods := netip.MustParsePrefix(topology.ClusterCIDR)
	seen := map[netip.Addr]bool{}
	for range 30_000 {
		a := w.Source()
		if seen[a] || !pods.Contains(a) {
			t.Fatalf("%s was given out twice, or is no pod's", a)
		}
		seen[a] = true
	}
}

func TestReached(t *testing.T) {
	w := newNetwork(t)
	old, added := topology.Endpoint(1), topology.Endpoint(2)
	if _, err := w.Reached(t.Context(), vip, old, 20*time.Millisecond); !errors.Is(err, topology.ErrNotInTime) {
		t.Errorf("a Service that no proxy serves: %v, want ErrNotInTime", err)
	}
	carry(t, w, old)
	for range 3 {
		before := time.Now()
		at, err := w.Reached(t.Context(), vip, old, time.Minute)
		if err != nil || at.Before(before) || at.After(time.Now()) {
			t.Errorf("a connection came at %s, %v, want a time since %s", at, err, before)
		}
	}
	becomes(t, w, added, w.Reached)
}
