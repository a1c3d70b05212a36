package packet

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/kube-ipvs/kube-ipvs/e2e/backend"
	"github.com/kube-ipvs/kube-ipvs/e2e/load"
)

// worker is a backend that can end before the test does: an address of its own in a namespace that it shares with others.
type worker struct {
	endpoint
	name string
	end  func() // closes its sockets, and cuts what is connected to them
}

// workers makes so many, the first with this number, on two pods in turn. They serve TCP and UDP over IPv4.
func (w *world) workers(t *testing.T, first, n int) []*worker {
	t.Helper()
	var out []*worker
	for i := first; i < first+n; i++ {
		p := []*pod{w.pod1, w.pod2}[i%2]
		at := p.another(t, 100+i)
		out = append(out, &worker{
			endpoint: endpoint{addr: at, node: p.node}, name: fmt.Sprintf("worker-%02d", i),
			end: open(t, p.space, backend.Config{Name: fmt.Sprintf("worker-%02d", i), TCP: at + ":8080", UDP: at + ":8080"}),
		})
	}
	return out
}

// at is the worker as a destination of a Service's TCP port.
func (k *worker) at(s service) serving {
	return serving{"TCP", netip.MustParseAddrPort(hostPort(s.vip.v4, 80)), netip.MustParseAddrPort(hostPort(k.addr, 8080))}
}

// another gives a pod of the node one more IPv4 address of the node's range.
func (p *pod) another(t *testing.T, number int) string {
	t.Helper()
	addr := podAddr(0, number).v4
	p.address(t, "eth0", addr+"/32")
	return addr
}

// clients are addresses of the pod to ask from, so many new ones.
func (p *pod) clients(t *testing.T, first, n int) []netip.Addr {
	t.Helper()
	var out []netip.Addr
	for i := range n {
		out = append(out, netip.MustParseAddr(p.another(t, first+i)))
	}
	return out
}

// load starts clients in the pod's namespace, which go on until they are stopped or the test ends.
func (p *pod) load(t *testing.T, profile load.Profile) *load.Run {
	t.Helper()
	profile.Enter = p.do
	if profile.Timeout == 0 {
		profile.Timeout = patience
	}
	run, err := load.Start(t.Context(), profile)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = run.Stop() }) // the test has looked, or failed already
	return run
}

// unfailing requires every new connection to have been answered. If a machine stalls for a second, a
// client sends the first packet of a connection twice. If the destination begins to drain between
// the two, or packets overtake each other, the kernel takes the second for a new connection from an
// old port. It then drops the first (ip_vs_in, net/netfilter/ipvs/ip_vs_core.c). On such a machine
// a few connections may fail, and the figure is marked as proving nothing.
func unfailing(t *testing.T, got load.Report, err error) {
	t.Helper()
	stalled := got.Late > time.Second
	if err != nil || !stalled && got.Failures() > 0 || got.Failures() > got.Started/100 {
		t.Errorf("new connections: %v\n%s", err, report(got))
	}
	if stalled && got.Failures() > 0 {
		t.Logf("figure: the machine stalled, so this is no proof: %d failed, of which %d were sent twice\n%s", got.Failures(), got.Resent, report(got))
	}
}

// report prints a run for a message.
func report(r load.Report) string {
	var b strings.Builder
	_ = r.Print(&b)
	return b.String()
}

// until waits for a state of a run.
func until(t *testing.T, run *load.Run, what string, ok func(load.Report) bool) {
	t.Helper()
	poll(t, what, settleTimeout, func() error {
		if r := run.Report(); !ok(r) {
			return fmt.Errorf("so far:\n%s", report(r))
		}
		return nil
	})
}

// more waits until so many further new connections were answered or have failed.
func more(t *testing.T, run *load.Run, n int) {
	t.Helper()
	r := run.Report()
	want := r.OK + r.Failures() + n
	until(t, run, fmt.Sprintf("%d more requests", n), func(r load.Report) bool { return r.OK+r.Failures() >= want })
}
