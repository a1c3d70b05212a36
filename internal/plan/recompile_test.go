package plan_test

import (
	"net/netip"
	"testing"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/plan"
	"github.com/kube-ipvs/kube-ipvs/internal/testkit/build"
	"github.com/kube-ipvs/kube-ipvs/scheduler"
)

// wholeHost is a machine with something of everything.
func wholeHost() model.Host {
	return model.Host{
		Node:      model.Node{Name: "here", Zone: "z1", Addresses: addrs("192.0.2.10")},
		Links:     onLinks("eth0=192.0.2.10"),
		Gateways:  addrs("192.0.2.1"),
		Nodes:     map[netip.Addr]string{addr("192.0.2.10"): "here", addr("192.0.2.11"): "far"},
		NodePorts: addrs("192.0.2.10"),
	}
}

// TestAffects lists, for each change, the Services of five that it affects.
func TestAffects(t *testing.T) {
	services := []*model.Service{
		web(),
		web(nodePorts(30080)),
		web(externalIPs("198.51.100.1")),
		web(ingress("203.0.113.1")),
		web(ingress("203.0.113.2"), ranges("192.0.2.0/24")),
	}
	const plain, nodePort, external, ingressed, ranged = "0", "1", "2", "3", "4"
	const all = plain + nodePort + external + ingressed + ranged
	hold := func(a string) func(*plan.Options) {
		return func(o *plan.Options) { o.Host.Links[addr(a)] = "eth1" }
	}

	for _, tt := range []struct {
		name   string
		change func(*plan.Options)
		want   string
	}{
		{"nothing", func(*plan.Options) {}, ""},
		{"the node's name", func(o *plan.Options) { o.Node = "there" }, all},
		{"its zone", func(o *plan.Options) { o.Zone = "z2" }, all},
		{"the scheduler", func(o *plan.Options) { o.Scheduler = scheduler.MustParse("sh") }, all},
		{"a family", func(o *plan.Options) { o.IPv6 = false }, all},
		{"the other", func(o *plan.Options) { o.IPv4 = false }, all},
		{"external IPs off", func(o *plan.Options) { o.ExternalIPs.Off = true }, external},
		{"their networks", func(o *plan.Options) { o.ExternalIPs.Allowed = nets("10.0.0.0/8") }, external},
		{"where node ports answer", func(o *plan.Options) { o.Host.NodePorts = addrs("192.0.2.12") }, nodePort},
		{"the addresses of this Node", func(o *plan.Options) { o.Host.Node.Addresses = addrs("192.0.2.12") }, ranged},
		{"an address on a link", hold("192.0.2.12"), ""},
		{"a cluster IP on a link", hold("10.96.0.1"), all},
		{"an external IP on a link", hold("198.51.100.1"), external},
		{"a load-balancer address on a link", hold("203.0.113.1"), ingressed},
		{"an address of another Node", func(o *plan.Options) { o.Host.Nodes[addr("203.0.113.1")] = "new" }, ingressed},
		{"any other address of another Node", func(o *plan.Options) { o.Host.Nodes[addr("192.0.2.13")] = "new" }, ""},
		{"the gateway", func(o *plan.Options) { o.Host.Gateways = addrs("198.51.100.1") }, external},
		{"what no plan looks at", func(o *plan.Options) { o.Host.Node.PodCIDRs = nets("10.0.0.0/24") }, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before, after := at(wholeHost()), at(wholeHost())
			tt.change(&after)
			got := ""
			for i, svc := range services {
				forth, back := after.Affects(before, svc, nil), before.Affects(after, svc, nil)
				if forth != back {
					t.Errorf("service %d: %t one way, %t the other", i, forth, back)
				}
				if forth {
					got += string(rune('0' + i))
				}
			}
			if got != tt.want {
				t.Errorf("concerns services %q, want %q", got, tt.want)
			}
		})
	}
}

// Without a Node all of the machine's addresses are its own.
func TestConcernsByLinksAlone(t *testing.T) {
	before, after := at(model.Host{Links: onLinks("eth0=192.0.2.10")}), at(model.Host{Links: onLinks("eth0=192.0.2.11")})
	if !after.Affects(before, web(ingress("203.0.113.1"), ranges("192.0.2.0/24")), nil) {
		t.Error("a Service with source ranges has to be compiled again")
	}
	if after.Affects(before, web(ingress("203.0.113.1")), nil) {
		t.Error("a Service without source ranges has nothing to do with it")
	}
}

// It is asked for every Service of the cluster.
func TestConcernsCostsNothingWhereItConcernsNothing(t *testing.T) {
	before, after := at(wholeHost()), at(wholeHost())
	after.Host.Node.Addresses, after.Host.NodePorts = addrs("192.0.2.12"), addrs("192.0.2.12")
	svc := web(build.IPs("fd00:96::1"), externalIPs("198.51.100.1"), ingress("203.0.113.1"))
	if got := testing.AllocsPerRun(100, func() { after.Affects(before, svc, nil) }); got != 0 {
		t.Errorf("%v allocations, want none", got)
	}
}
