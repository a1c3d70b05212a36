package catalog_test

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/catalog"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/source"
	"github.com/kube-ipvs/kube-ipvs/internal/testkit/build"
)

// Claims of Services on addresses outside the cluster are compared with endpoints and with former
// addresses of Nodes.
func TestClaimsOfOthers(t *testing.T) {
	claimed, other := netip.MustParseAddr("192.0.2.7"), netip.MustParseAddr("2001:db8::7")
	web := build.Service("web", build.IPs("10.96.0.1"), build.Port("http", 80))
	web.ExternalIPs = []netip.Addr{claimed}
	web.Ingress = []model.Ingress{{Addr: other}, {Addr: netip.MustParseAddr("192.0.2.9"), Proxy: true}}
	plain := build.Service("web", build.IPs("10.96.0.1"), build.Port("http", 80))
	ends := func(addrs ...string) model.Slice {
		s := build.Slice("db", "a", build.Target("http", 80))
		for _, a := range addrs {
			s.Endpoints = append(s.Endpoints, model.Endpoint{Addr: netip.MustParseAddr(a)})
		}
		return s
	}
	nodeB := func(addrs ...netip.Addr) model.Node { return model.Node{Name: "node-b", Addresses: addrs} }

	c := catalog.New(zap.NewNop(), "node-a", model.FromFile)
	before := map[netip.Addr]string{claimed: "node-c", netip.MustParseAddr("192.0.2.8"): "node-d"}
	c.Remember(before)
	for _, step := range []struct {
		name      string
		do        func()
		endpoints []netip.Addr
		guarded   map[netip.Addr]string
		kept      map[netip.Addr]string
	}{
		{"the process before knew a Node's address", func() { c.SetService(*web) }, nil, map[netip.Addr]string{claimed: "node-c"}, before},
		{"all is told", func() { c.SetState(model.FromFile, source.Complete) }, nil, map[netip.Addr]string{claimed: "node-c"}, map[netip.Addr]string{claimed: "node-c"}},
		{"an endpoint has one", func() { c.SetSlice(ends("10.244.0.1", "2001:db8::7", "192.0.2.9")) }, []netip.Addr{other}, map[netip.Addr]string{claimed: "node-c"}, map[netip.Addr]string{claimed: "node-c"}},
		{"another Node has the other", func() { c.SetNode(model.FromFile, nodeB(claimed)) }, []netip.Addr{other}, nil, map[netip.Addr]string{claimed: "node-b"}},
		{"it has none for a moment", func() { c.SetNode(model.FromFile, nodeB()) }, []netip.Addr{other}, map[netip.Addr]string{claimed: "node-b"}, map[netip.Addr]string{claimed: "node-b"}},
		{"the endpoint goes", func() { c.SetSlice(ends("10.244.0.1")) }, nil, map[netip.Addr]string{claimed: "node-b"}, map[netip.Addr]string{claimed: "node-b"}},
		{"the Service gives both up", func() { c.SetService(*plain) }, nil, nil, nil},
		{"and claims them again", func() { c.SetService(*web) }, nil, nil, nil},
	} {
		step.do()
		b := c.Take()
		var endpoints []netip.Addr
		for a := range b.Endpoints {
			endpoints = append(endpoints, a)
		}
		if diff := cmp.Diff(step.endpoints, endpoints, cmpopts.EquateComparable(netip.Addr{}), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s: endpoints (-want +got):\n%s", step.name, diff)
		}
		if diff := cmp.Diff(step.guarded, b.Guarded, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s: guarded (-want +got):\n%s", step.name, diff)
		}
		if diff := cmp.Diff(step.kept, b.Kept, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s: kept (-want +got):\n%s", step.name, diff)
		}
	}
}
