package plan_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/plan"
	"github.com/kube-ipvs/kube-ipvs/internal/testkit/build"
)

// sized makes Service number i with so many endpoints, a tenth of them here.
func sized(i, endpoints int) (*model.Service, []model.Slice) {
	name := fmt.Sprint("svc-", i)
	svc := build.Service(name, build.Port("http", 80))
	svc.ClusterIPs = []netip.Addr{netip.AddrFrom4([4]byte{10, 96, byte(i >> 8), byte(i)})}
	var out []model.Slice
	for first := 0; first < endpoints; first += 100 {
		s := build.Slice(name, fmt.Sprintf("%s-%d", name, first), build.Target("http", 8080), build.Family(model.IPv4))
		for j := first; j < min(first+100, endpoints); j++ {
			// 7919 is prime: the addresses come in no order, as pods do.
			n := j * 7919 % 65521
			e := model.Endpoint{Addr: netip.AddrFrom4([4]byte{10, byte(i), byte(n >> 8), byte(n)}), Node: "far", Ready: true, Serving: true}
			if j%10 == 0 {
				e.Node = "here"
			}
			s.Endpoints = append(s.Endpoints, e)
		}
		out = append(out, s)
	}
	return svc, out
}

// A Service costs the same however many others there are: ns/service stays.
func BenchmarkServices(b *testing.B) {
	for _, n := range []int{10, 1_000, 10_000} {
		b.Run(fmt.Sprintf("%d", n), func(b *testing.B) {
			svcs, slices := make([]*model.Service, n), make([][]model.Slice, n)
			for i := range n {
				svcs[i], slices[i] = sized(i, 10)
			}
			c := plan.New(here)
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				c.Compile(svcs[i].ID, svcs[i], slices[i])
				i = (i + 1) % n
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N), "ns/service")
		})
	}
}

func BenchmarkEndpoints(b *testing.B) {
	for _, n := range []int{10, 100, 1_000} {
		b.Run(fmt.Sprintf("%d", n), func(b *testing.B) {
			svc, slices := sized(1, n)
			c := plan.New(here)
			b.ReportAllocs()
			for b.Loop() {
				c.Compile(svc.ID, svc, slices)
			}
		})
	}
}

// A Service with every kind of address shares its lists among them.
func BenchmarkEveryKind(b *testing.B) {
	for _, n := range []int{10, 100} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			svc, slices := sized(1, n)
			for _, ask := range []func(*model.Service){nodePorts(30080), externalIPs("198.51.100.1"), ingress("203.0.113.1"),
				ranges("10.0.0.0/8"), build.InternalLocal(), externalLocal(), healthPort(32000)} {
				ask(svc)
			}
			c := plan.New(dualNode)
			b.ReportAllocs()
			for b.Loop() {
				c.Compile(svc.ID, svc, slices)
			}
		})
	}
}

// The cost of a change of the node for each Service that the change does not affect.
func BenchmarkConcerns(b *testing.B) {
	before, after := at(wholeHost()), at(wholeHost())
	after.Host.NodePorts = addrs("192.0.2.12")
	svc, _ := sized(1, 10)
	b.ReportAllocs()
	for b.Loop() {
		if after.Affects(before, svc, nil) {
			b.Fatal("a Service without node ports is concerned")
		}
	}
}

// A plan takes the room of its result (bindings, groups, frontends, backends,
// hairpins), one working list, and nothing per endpoint.
func TestAllocations(t *testing.T) {
	c := plan.New(here)
	perPlan := func(endpoints int) float64 {
		svc, slices := sized(1, endpoints)
		return testing.AllocsPerRun(100, func() { c.Compile(svc.ID, svc, slices) })
	}
	if got := perPlan(10); got > 8 {
		t.Errorf("%v allocations for 10 endpoints, want at most 8", got)
	}
	if got := perPlan(1000); got > 8 {
		t.Errorf("%v allocations for 1,000 endpoints, want at most 8", got)
	}
}
