package healthcheck_test

import (
	"context"
	"net"
	"net/netip"
	"testing"

	"go.uber.org/zap/zaptest"

	"github.com/kube-ipvs/kube-ipvs/internal/healthcheck"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// run runs servers until the returned stop, at the latest until the test ends.
func run(t *testing.T, s *healthcheck.Servers) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- s.Run(ctx); close(ended) }()
	stop = func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("run: %v", err)
		}
	}
	t.Cleanup(stop)
	return stop
}

// refused fails the test if a listener accepts.
func refused(t *testing.T, at netip.AddrPort) {
	t.Helper()
	if c, err := net.Dial("tcp", at.String()); err == nil {
		c.Close()
		t.Errorf("%s still listens", at)
	}
}

func TestPortsFollowTheService(t *testing.T) {
	h := start(t, healthcheck.Options{})
	first := h.serve(1)
	second := h.free("127.0.0.1")
	h.Set(web, one(second.Port()))
	h.wait(row(second, web, 1))
	refused(t, first)
	if r := ask(t, second, "GET / HTTP/1.1"); r.status != 200 {
		t.Errorf("status %d on the new port", r.status)
	}

	h.Set(web, model.HealthCheck{})
	h.wait()
	refused(t, second)
}

// A load balancer keeps its connection; a count that changes must not cost it that.
func TestCountsChangeOnOneConnection(t *testing.T) {
	h := start(t, healthcheck.Options{})
	at := h.serve(1)
	conn, err := net.Dial("tcp", at.String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, tt := range []struct{ ready, status int }{{1, 200}, {0, 503}, {3, 200}} {
		h.Set(web, model.HealthCheck{Port: at.Port(), IPv4: model.LocalEndpoints{Served: true, Ready: tt.ready}})
		h.wait(row(at, web, tt.ready))
		if r := talk(t, conn, "GET / HTTP/1.1"); r.status != tt.status {
			t.Errorf("%d ready: status %d, want %d", tt.ready, r.status, tt.status)
		}
	}
}

func TestFamiliesAndAddresses(t *testing.T) {
	v4, v6 := netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("::1")
	other, any4, any6 := netip.MustParseAddr("127.0.0.2"), netip.IPv4Unspecified(), netip.IPv6Unspecified()
	h := start(t, healthcheck.Options{})
	port := h.free("::").Port() // of both families
	both := model.HealthCheck{Port: port, IPv4: model.LocalEndpoints{Served: true, Ready: 2}, IPv6: model.LocalEndpoints{Served: true}}
	rows := func(list ...netip.Addr) (out []healthcheck.PortStatus) {
		for _, a := range list {
			ready := 0
			if a.Is4() {
				ready = 2
			}
			out = append(out, row(netip.AddrPortFrom(a, port), web, ready))
		}
		return out
	}
	h.Set(web, both)
	h.wait(unopened(port, any4, 2), unopened(port, any6, 0))
	for _, tt := range []struct {
		name  string
		addrs []netip.Addr
		all   bool
		want  []healthcheck.PortStatus
		asked map[netip.Addr]int // status by address
		shut  []netip.Addr
	}{
		{name: "everywhere", all: true, want: rows(any4, any6), asked: map[netip.Addr]int{v4: 200, other: 200, v6: 503}},
		{name: "some, in place of everywhere", addrs: []netip.Addr{v6, v4, v4}, want: rows(v4, v6), asked: map[netip.Addr]int{v4: 200, v6: 503}, shut: []netip.Addr{other}},
		{name: "one more", addrs: []netip.Addr{v4, other, v6}, want: rows(v4, other, v6), asked: map[netip.Addr]int{v4: 200, other: 200, v6: 503}},
		{name: "one family", addrs: []netip.Addr{other}, want: append(rows(other), unopened(port, any6, 0)), asked: map[netip.Addr]int{other: 200}, shut: []netip.Addr{v4, v6}},
		{name: "everywhere, in place of some", addrs: []netip.Addr{v4}, all: true, want: rows(any4, any6), asked: map[netip.Addr]int{v4: 200, other: 200, v6: 503}},
		{name: "nowhere", want: []healthcheck.PortStatus{unopened(port, any4, 2), unopened(port, any6, 0)}, shut: []netip.Addr{v4, v6, other}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h.Listen(tt.addrs, tt.all)
			h.wait(tt.want...)
			for a, status := range tt.asked {
				if r := ask(t, netip.AddrPortFrom(a, port), "GET / HTTP/1.1"); r.status != status {
					t.Errorf("%s: status %d, want %d", a, r.status, status)
				}
			}
			for _, a := range tt.shut {
				refused(t, netip.AddrPortFrom(a, port))
			}
		})
	}
	h.Listen(nil, true)
	both.IPv6.Served = false
	h.Set(web, both)
	h.wait(rows(any4)...)
	refused(t, netip.AddrPortFrom(v6, port))
}

// TestServiceOfOneFamilyAnswersInBoth: a load balancer asks by any address of the node. Where the node has no address of the other
// family nothing is missing, and a Service that has the family goes before one that has not.
func TestServiceOfOneFamilyAnswersInBoth(t *testing.T) {
	v4, v6 := netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("::1")
	h := start(t, healthcheck.Options{})
	port := h.free("::").Port()
	counted := model.LocalEndpoints{Served: true, Ready: 2}
	lent := counted
	lent.Other = true
	h.Listen([]netip.Addr{v4, v6}, false)
	h.Set(api, model.HealthCheck{Port: port, IPv4: counted, IPv6: lent})
	h.wait(row(netip.AddrPortFrom(v4, port), api, 2), row(netip.AddrPortFrom(v6, port), api, 2))
	for _, a := range []netip.Addr{v4, v6} {
		if r := ask(t, netip.AddrPortFrom(a, port), "GET / HTTP/1.1"); r.status != 200 {
			t.Errorf("%s: status %d, want 200", a, r.status)
		}
	}
	h.Set(web, model.HealthCheck{Port: port, IPv4: model.LocalEndpoints{Served: true, Other: true, Ready: 1}, IPv6: model.LocalEndpoints{Served: true, Ready: 1}})
	h.wait(row(netip.AddrPortFrom(v4, port), api, 2), row(netip.AddrPortFrom(v6, port), web, 1))
	h.Set(web, model.HealthCheck{})
	h.Listen([]netip.Addr{v4}, false)
	h.wait(row(netip.AddrPortFrom(v4, port), api, 2))
}

// unopened is a port of a family without an address.
func unopened(port uint16, zero netip.Addr, ready int) healthcheck.PortStatus {
	r := row(netip.AddrPortFrom(zero, port), web, ready)
	r.Listening, r.Error = false, "NodePorts have no "+model.FamilyOf(zero).String()+" address on this node"
	return r
}

func TestTwoServicesWantOnePort(t *testing.T) {
	h := start(t, healthcheck.Options{})
	at := h.serve(1)
	loser := func(id, holder model.ServiceID) healthcheck.PortStatus {
		return healthcheck.PortStatus{
			Address: netip.AddrPortFrom(netip.IPv4Unspecified(), at.Port()), Service: id, Ready: 1,
			Error: "the port belongs to " + holder.String(),
		}
	}
	h.Set(api, one(at.Port())) // before the other by name, but later
	h.wait(loser(api, web), row(at, web, 1))
	if r := ask(t, at, "GET / HTTP/1.1"); r.body != onePod {
		t.Errorf("body %s, want the holder's", r.body)
	}
	h.Set(web, model.HealthCheck{})
	h.wait(row(at, api, 1))
	h.Set(web, one(at.Port()))
	h.wait(loser(web, api), row(at, api, 1))
	h.Set(web, model.HealthCheck{})
	h.Set(api, model.HealthCheck{})
	h.wait()
	refused(t, at)
}

func TestNothingIsLeftOpen(t *testing.T) {
	s := healthcheck.New(zaptest.NewLogger(t), healthcheck.Options{})
	h := &harness{s, t}
	at := h.free("127.0.0.1")
	h.Listen([]netip.Addr{at.Addr()}, false)
	h.Set(web, one(at.Port()))
	h.wait()
	for range 2 { // it can run again, and keeps what was wanted
		stop := run(t, s)
		h.wait(row(at, web, 1))
		stop()
		h.wait()
		refused(t, at)
	}
}
