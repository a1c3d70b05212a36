package ipvs_test

import (
	"context"
	"fmt"
	"net/netip"
	"runtime"
	"testing"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/catalog"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/link"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/plan"
	"github.com/kube-ipvs/kube-ipvs/internal/source"
	"github.com/kube-ipvs/kube-ipvs/internal/testkit/build"
	"github.com/kube-ipvs/kube-ipvs/ipset"
)

// BenchmarkMemory carries a cluster from the catalog into a kernel that stores nothing. It reports
// the memory of each package, in total and for each endpoint row, which is one endpoint of one
// Service. B/op is all that is allocated on the way, and decides how far the process grows at its
// start.
func BenchmarkMemory(b *testing.B) {
	for _, services := range []int{100, 10_000} {
		b.Run(fmt.Sprintf("services=%d", services), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				measure(b, services)
			}
		})
	}
}

const endpointsEach = 10

func measure(b *testing.B, services int) {
	b.StopTimer()
	rows := float64(services * endpointsEach)
	before := live()
	c := catalog.New(zap.NewNop(), "node-0", model.FromKube)
	for i := range services {
		svc, slice := member(i)
		c.SetService(*svc)
		c.SetSlice(slice)
	}
	c.SetState(model.FromKube, source.Complete)
	told := live()
	b.StartTimer()
	m := carry(b, c)
	b.StopTimer()
	carried := live()
	b.ReportMetric(float64(told-before)/rows, "catalog-B/row")
	b.ReportMetric(float64(carried-told)/rows, "mode-B/row")
	b.ReportMetric(float64(carried-before)/(1<<20), "live-MiB")
	runtime.KeepAlive(c)
	runtime.KeepAlive(m)
	b.StartTimer()
}

// carry compiles everything and applies it.
func carry(b *testing.B, c *catalog.Catalog) *ipvs.Mode {
	host := model.Host{NodePorts: []netip.Addr{netip.MustParseAddr("192.0.2.10"), netip.MustParseAddr("192.0.2.11")}}
	compiler := plan.New(plan.Options{Node: "node-0", IPv4: true, Host: host})
	cfg := config()
	cfg.Families = []model.Family{model.IPv4}
	m := ipvs.New(zap.NewNop(), cfg, ipvs.Deps{Servers: noServers{}, Sets: noSets{}, Rules: noRules{}, Links: noLinks{}})
	m.SetHost(host)
	for _, in := range c.Take().Services {
		m.Set(compiler.Compile(in.ID, in.Service, in.Slices))
	}
	if err := m.Load(context.Background()); err != nil {
		b.Fatal(err)
	}
	if r := m.Apply(context.Background(), dataplane.ApplyOptions{}); r.Pending > 0 {
		b.Fatalf("%d rows are pending: %v", r.Pending, r.Total().Err())
	}
	return m
}

// live is the size of the heap that is in use.
func live() uint64 {
	runtime.GC()
	runtime.GC() // objects with a finalizer, or in a pool, take two
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return s.HeapAlloc
}

var nodes = func() []string {
	out := make([]string, 100)
	for i := range out {
		out[i] = fmt.Sprint("node-", i)
	}
	return out
}()

// member is Service number i of a cluster of a hundred nodes: every tenth has a node port, every twentieth a load balancer.
func member(i int) (*model.Service, model.Slice) {
	name := fmt.Sprint("service-", i)
	svc := build.Service(name, build.Port("http", 80))
	svc.ClusterIPs = []netip.Addr{netip.AddrFrom4([4]byte{10, 96, byte(i >> 8), byte(i)})}
	if i%10 == 0 {
		svc.Type, svc.Ports[0].NodePort = "NodePort", uint16(30000+i/10)
	}
	if i%20 == 5 {
		svc.Type, svc.Ingress = "LoadBalancer", []model.Ingress{{Addr: netip.AddrFrom4([4]byte{203, 0, byte(113 + i>>8), byte(i)})}}
	}
	slice := build.Slice(name, name+"-x7k2p", build.Target("http", 8080), build.Family(model.IPv4))
	slice.Endpoints = make([]model.Endpoint, endpointsEach)
	for e := range slice.Endpoints {
		n := i*endpointsEach + e
		slice.Endpoints[e] = model.Endpoint{
			Addr: netip.AddrFrom4([4]byte{10, byte(128 + n>>16), byte(n >> 8), byte(n)}),
			Node: nodes[n*7%len(nodes)], Ready: true, Serving: true,
		}
	}
	return svc, slice
}

// The packages of a kernel that is empty, accepts every change, and cannot be read.
type (
	noServers struct{}
	noSets    struct{}
	noRules   struct{}
	noLinks   struct{}
)

func (noServers) ListServers(context.Context) (map[vserver.ServerKey]vserver.Server, error) {
	return map[vserver.ServerKey]vserver.Server{}, nil
}

func (noServers) GetServers(context.Context, []vserver.ServerKey) (map[vserver.ServerKey]vserver.Server, error) {
	return nil, nil
}

func (noServers) ListDestinations(context.Context, vserver.ServerKey) (map[vserver.DestinationKey]vserver.Destination, error) {
	return nil, nil
}

func (noServers) Count(map[vserver.DestinationKey]struct{}) vserver.Counting { return nil }

func (noServers) BeginSurvey(context.Context) error { return nil }

func (noServers) Survey(context.Context, func(vserver.ServerKey, vserver.Digest)) (bool, error) {
	return true, nil
}

func (noServers) WriteServers(context.Context, []vserver.ServerChange) []error           { return nil }
func (noServers) WriteDestinations(context.Context, []vserver.DestinationChange) []error { return nil }

func (noSets) ListSets(context.Context) ([]ipset.Set, error) { return nil, nil }

func (noSets) Stat(context.Context) ([]ipset.Info, error) { return nil, nil }

func (noSets) List(context.Context, string) (ipset.Set, []ipset.Entry, error) {
	return ipset.Set{}, nil, ipset.ErrNotExist
}

func (noSets) CreateAll(context.Context, ...ipset.Set) []error                 { return nil }
func (noSets) Replace(context.Context, ipset.Set, []ipset.Entry) error         { return nil }
func (noSets) Destroy(context.Context, string) error                           { return nil }
func (noSets) Write(context.Context, ipset.Set, []ipset.Change) (none []error) { return nil }
func (noSets) WriteAll(_ context.Context, b ...ipset.Batch) [][]error          { return make([][]error, len(b)) }

func (noRules) List(context.Context) (map[rules.ChainKey]rules.Chain, map[rules.JumpKey]rules.Jump, error) {
	return map[rules.ChainKey]rules.Chain{}, map[rules.JumpKey]rules.Jump{}, nil
}

func (noRules) Generation(context.Context) uint64                        { return 0 }
func (noRules) WriteChains(context.Context, []rules.ChainChange) []error { return nil }
func (noRules) WriteJumps(context.Context, []rules.JumpChange) []error   { return nil }

func (noLinks) Ensure(context.Context) (bool, error) { return false, nil }
func (noLinks) List(context.Context) (map[netip.Addr]struct{}, error) {
	return map[netip.Addr]struct{}{}, nil
}
func (noLinks) Write(context.Context, []link.Change) []error            { return nil }
func (noLinks) WriteRoutes(context.Context, []link.RouteChange) []error { return nil }
func (noLinks) Remove(context.Context) error                            { return nil }
func (noLinks) WriteDetached(context.Context, []link.Change) []error    { return nil }

func (noLinks) ListDetached(context.Context) (map[netip.Addr]bool, error) { return nil, nil }

func (noLinks) ListRoutes(context.Context) (map[netip.Prefix]struct{}, error) {
	return map[netip.Prefix]struct{}{}, nil
}
