package plan_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/plan"
	"github.com/kube-ipvs/kube-ipvs/internal/testkit/build"
	"github.com/kube-ipvs/kube-ipvs/scheduler"
)

// What a Service asks for besides its cluster IPs.

func externalIPs(all ...string) func(*model.Service) {
	return func(s *model.Service) { s.ExternalIPs = append(s.ExternalIPs, addrs(all...)...) }
}

func ingress(all ...string) func(*model.Service) {
	return func(s *model.Service) {
		s.Type = "LoadBalancer"
		for _, a := range all {
			s.Ingress = append(s.Ingress, model.Ingress{Addr: addr(a)})
		}
	}
}

func proxied(a string) func(*model.Service) {
	return func(s *model.Service) {
		s.Type = "LoadBalancer"
		s.Ingress = append(s.Ingress, model.Ingress{Addr: addr(a), Proxy: true})
	}
}

// nodePorts gives the ports their node ports, in order.
func nodePorts(all ...uint16) func(*model.Service) {
	return func(s *model.Service) {
		for i, n := range all {
			s.Ports[i].NodePort = n
		}
	}
}

func externalLocal() func(*model.Service) {
	return func(s *model.Service) { s.ExternalLocal = true }
}

func ranges(all ...string) func(*model.Service) {
	return func(s *model.Service) { s.SourceRanges = nets(all...) }
}

// at is the node of the tests on a machine.
func at(h model.Host) plan.Options {
	o := here
	o.Host = h
	return o
}

// dualNode answers node ports on one address of each family.
var dualNode = at(model.Host{NodePorts: addrs("192.0.2.10", "2001:db8::10")})

// full prints a frontend with what tells the kinds apart:
//
//	LoadBalancer 1.2.3.4:80/tcp local detour 10.96.0.1:80 -> 10.0.0.1:8080
func full(f model.Frontend) string {
	words := []string{f.Kind.String(), f.Key.String()}
	say := func(yes bool, word string) {
		if yes {
			words = append(words, word)
		}
	}
	say(f.Bind == (f.Kind == model.KindNodePort), map[bool]string{true: "bound", false: "unbound"}[f.Bind])
	say(f.Local, "local")
	say(f.NoLocal, "silent")
	for _, r := range f.SourceRanges {
		say(true, "from "+r.String())
	}
	say(f.OwnNode, "and this node")
	say(f.Detour.IsValid(), "detour "+f.Detour.String())
	return strings.Join(words, " ") + " ->" + backendList(f.Backends)
}

// expectFull compares all frontends, addresses that stay unbound, and notes.
func expectFull(t *testing.T, p model.ServicePlan, want ...string) {
	t.Helper()
	var got []string
	for _, f := range p.Frontends {
		got = append(got, full(f))
	}
	for _, a := range p.Unbound {
		got = append(got, "unbound "+a.String())
	}
	for _, n := range p.Notes {
		got = append(got, "note: "+n)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("plan (-want +got):\n%s", diff)
	}
}

func TestEveryKindOfFrontend(t *testing.T) {
	v4, v6 := webSlice("a", ready("10.0.0.1", "here"), ready("10.0.0.2", "far")), webSlice("b", ready("fd00::1", "far"))
	for _, tt := range []struct {
		name string
		svc  *model.Service
		want []string
	}{
		{
			name: "all at once",
			svc:  web(nodePorts(30080), externalIPs("198.51.100.2", "198.51.100.1"), ingress("203.0.113.2", "203.0.113.1")),
			want: []string{
				"ClusterIP 10.96.0.1:80/tcp -> 10.0.0.1:8080 10.0.0.2:8080",
				"NodePort 192.0.2.10:30080/tcp -> 10.0.0.1:8080 10.0.0.2:8080",
				"ExternalIP 198.51.100.1:80/tcp -> 10.0.0.1:8080 10.0.0.2:8080",
				"ExternalIP 198.51.100.2:80/tcp -> 10.0.0.1:8080 10.0.0.2:8080",
				"LoadBalancer 203.0.113.1:80/tcp -> 10.0.0.1:8080 10.0.0.2:8080",
				"LoadBalancer 203.0.113.2:80/tcp -> 10.0.0.1:8080 10.0.0.2:8080",
			},
		},
		{
			name: "both families, each with its own endpoints",
			svc:  web(build.IPs("fd00:96::1"), nodePorts(30080), externalIPs("2001:db8::e"), ingress("203.0.113.1", "2001:db8::f")),
			want: []string{
				"ClusterIP 10.96.0.1:80/tcp -> 10.0.0.1:8080 10.0.0.2:8080",
				"NodePort 192.0.2.10:30080/tcp -> 10.0.0.1:8080 10.0.0.2:8080",
				"LoadBalancer 203.0.113.1:80/tcp -> 10.0.0.1:8080 10.0.0.2:8080",
				"ExternalIP [2001:db8::e]:80/tcp -> [fd00::1]:8080",
				"LoadBalancer [2001:db8::f]:80/tcp -> [fd00::1]:8080",
				"NodePort [2001:db8::10]:30080/tcp -> [fd00::1]:8080",
				"ClusterIP [fd00:96::1]:80/tcp -> [fd00::1]:8080",
			},
		},
		{
			name: "only the ports that have a node port",
			svc:  web(build.Port("other", 81), nodePorts(0, 30081), externalIPs("198.51.100.1")),
			want: []string{
				"ClusterIP 10.96.0.1:80/tcp -> 10.0.0.1:8080 10.0.0.2:8080",
				"ClusterIP 10.96.0.1:81/tcp ->",
				"NodePort 192.0.2.10:30081/tcp ->",
				"ExternalIP 198.51.100.1:80/tcp -> 10.0.0.1:8080 10.0.0.2:8080",
				"ExternalIP 198.51.100.1:81/tcp ->",
				`note: 10.96.0.1:81/tcp: no EndpointSlice has a port named "other" over tcp: no backends`,
			},
		},
		{
			name: "an address that is there already",
			svc: web(build.IPs("10.96.0.1"), externalIPs("198.51.100.1", "10.96.0.1", "198.51.100.1"),
				ingress("198.51.100.1", "10.96.0.1", "203.0.113.1", "203.0.113.1")),
			want: []string{
				"ClusterIP 10.96.0.1:80/tcp -> 10.0.0.1:8080 10.0.0.2:8080",
				"ExternalIP 198.51.100.1:80/tcp -> 10.0.0.1:8080 10.0.0.2:8080",
				"LoadBalancer 203.0.113.1:80/tcp -> 10.0.0.1:8080 10.0.0.2:8080",
				"note: external IP 10.96.0.1 is its cluster IP already: it answers there once, as that",
				"note: load-balancer address 10.96.0.1 is its cluster IP already: it answers there once, as that",
				"note: load-balancer address 198.51.100.1 is its external IP already: it answers there once, as that",
			},
		},
		{
			name: "and takes its source ranges with it",
			svc:  web(externalIPs("198.51.100.1"), ingress("198.51.100.1"), ranges("10.0.0.0/8")),
			want: []string{
				"ClusterIP 10.96.0.1:80/tcp -> 10.0.0.1:8080 10.0.0.2:8080",
				"ExternalIP 198.51.100.1:80/tcp -> 10.0.0.1:8080 10.0.0.2:8080",
				"note: load-balancer address 198.51.100.1 is its external IP already: it answers there once, as that, without loadBalancerSourceRanges",
			},
		},
		{
			name: "a node port that is a port of another address already",
			svc:  web(build.Port("high", 30080), nodePorts(30080), externalIPs("192.0.2.10")),
			want: []string{
				"ClusterIP 10.96.0.1:80/tcp -> 10.0.0.1:8080 10.0.0.2:8080",
				"ClusterIP 10.96.0.1:30080/tcp ->",
				"ExternalIP 192.0.2.10:80/tcp -> 10.0.0.1:8080 10.0.0.2:8080",
				"ExternalIP 192.0.2.10:30080/tcp ->",
				`note: 10.96.0.1:30080/tcp: no EndpointSlice has a port named "high" over tcp: no backends`,
				`note: node port 30080/tcp of port "http" does not answer on 192.0.2.10: port "high" of its external IP does`,
			},
		},
		{
			name: "one node port for two ports",
			svc:  build.Service("web", build.IPs("10.96.0.1"), build.Port("z", 1), build.Port("http", 80), nodePorts(30080, 30080)),
			want: []string{
				"ClusterIP 10.96.0.1:1/tcp ->",
				"ClusterIP 10.96.0.1:80/tcp -> 10.0.0.1:8080 10.0.0.2:8080",
				"NodePort 192.0.2.10:30080/tcp -> 10.0.0.1:8080 10.0.0.2:8080",
				`note: 10.96.0.1:1/tcp: no EndpointSlice has a port named "z" over tcp: no backends`,
				`note: node port 30080/tcp is listed twice: port "z" does not answer there`,
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := plan.New(dualNode).Compile(tt.svc.ID, tt.svc, []model.Slice{v4, v6})
			expectFull(t, p, tt.want...)
		})
	}
}

// Affinity, scheduler and name are the same on all frontends; hairpins stand at
// the cluster IP alone.
func TestWhatFrontendsHaveInCommon(t *testing.T) {
	svc := web(nodePorts(30080), externalIPs("198.51.100.1"), ingress("203.0.113.1"),
		build.Affinity(time.Hour), build.InternalLocal(), externalLocal())
	opts := dualNode
	opts.Scheduler = scheduler.MustParse("sh")
	p := plan.New(opts).Compile(svc.ID, svc, []model.Slice{webSlice("a", ready("10.0.0.1", "here"), ready("10.0.0.2", "far"))})
	if len(p.Frontends) != 5 {
		t.Fatalf("%d frontends, want one of each kind", len(p.Frontends))
	}
	for _, f := range p.Frontends {
		if f.Name() != "default/web:http" || f.Affinity != time.Hour || f.Scheduler != opts.Scheduler {
			t.Errorf("%s %s: name %q, affinity %s, scheduler %s", f.Kind, f.Key, f.Name(), f.Affinity, f.Scheduler)
		}
		if got, want := len(f.Hairpin) > 0, f.Kind == model.KindClusterIP; got != want {
			t.Errorf("%s %s: hairpins %v", f.Kind, f.Key, f.Hairpin)
		}
	}
}

// Ten thousand addresses of one Service are not ten thousand lists.
func TestListsAreShared(t *testing.T) {
	slice := webSlice("a", ready("10.0.0.1", "here"), ready("10.0.0.2", "far"))
	svc := web(nodePorts(30080), externalIPs("198.51.100.1"), ingress("203.0.113.1"), build.InternalLocal(), externalLocal())
	lists := map[*model.Backend]bool{}
	for _, f := range plan.New(dualNode).Compile(svc.ID, svc, []model.Slice{slice}).Frontends {
		lists[&f.Backends[0]] = true
	}
	if len(lists) != 2 {
		t.Errorf("%d lists, want one a policy", len(lists))
	}
}

func TestExternalAddressesThatAreNotServed(t *testing.T) {
	v4only := here
	v4only.IPv6 = false
	off, limited := here, here
	off.ExternalIPs.Off = true
	limited.ExternalIPs.Allowed = nets("198.51.100.0/24", "fd00::/8")

	for _, tt := range []struct {
		name string
		opts plan.Options
		svc  *model.Service
		want []string
	}{
		{"a family that the Service does not have", here, web(externalIPs("2001:db8::1"), ingress("2001:db8::2")), []string{
			"note: external IP 2001:db8::1 is not served: the Service has no IPv6 cluster IP",
			"note: load-balancer address 2001:db8::2 is not served: the Service has no IPv6 cluster IP"}},
		{"whose cluster IP is unfit", here, web(build.IPs("fe80::1"), ingress("2001:db8::2")), []string{
			"note: cluster IP fe80::1 is not served: a link-local address",
			"note: load-balancer address 2001:db8::2 is not served: the Service has no IPv6 cluster IP"}},
		{"a family that the node does not serve", v4only, web(ingress("2001:db8::2")), []string{
			"note: load-balancer address 2001:db8::2 is not served: this node does not serve IPv6"}},
		{"addresses for no Service", here, web(externalIPs("127.0.0.1", "0.0.0.0"), ingress("169.254.1.1", "224.0.0.1")), []string{
			"note: external IP 0.0.0.0 is not served: the unspecified address",
			"note: external IP 127.0.0.1 is not served: a loopback address",
			"note: load-balancer address 169.254.1.1 is not served: a link-local address",
			"note: load-balancer address 224.0.0.1 is not served: a multicast address"}},
		{"external IPs switched off", off, web(externalIPs("198.51.100.1", "198.51.100.2")), []string{
			"note: external IPs are not served: feature gate AllowServiceExternalIPs is off"}},
		{"switched off, and none there", off, web(), nil},
		{"outside the allowed networks", limited, web(externalIPs("203.0.113.1")), []string{
			"note: external IP 203.0.113.1 is not served: not inside --external-ip-allowed-cidrs"}},
		{"left to the load balancer", here, web(proxied("203.0.113.1")), []string{
			"note: load-balancer address 203.0.113.1 is left to the load balancer (ipMode Proxy)"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := plan.New(tt.opts).Compile(tt.svc.ID, tt.svc, []model.Slice{webSlice("a", ready("10.0.0.1", "far"))})
			expectFull(t, p, append([]string{"ClusterIP 10.96.0.1:80/tcp -> 10.0.0.1:8080"}, tt.want...)...)
		})
	}
}

// The allowed networks say nothing about the addresses of load balancers.
func TestAllowedNetworksLimitExternalIPsOnly(t *testing.T) {
	opts := here
	opts.ExternalIPs.Allowed = nets("198.51.100.0/24")
	svc := web(externalIPs("198.51.100.1", "203.0.113.1"), ingress("203.0.113.1"))
	expectFull(t, plan.New(opts).Compile(svc.ID, svc, []model.Slice{webSlice("a", ready("10.0.0.1", "far"))}),
		"ClusterIP 10.96.0.1:80/tcp -> 10.0.0.1:8080",
		"ExternalIP 198.51.100.1:80/tcp -> 10.0.0.1:8080",
		"LoadBalancer 203.0.113.1:80/tcp -> 10.0.0.1:8080",
		"note: external IP 203.0.113.1 is not served: not inside --external-ip-allowed-cidrs")
}

func TestNodePortsWithoutAnAddress(t *testing.T) {
	slices := []model.Slice{webSlice("a", ready("10.0.0.1", "far")), webSlice("b", ready("fd00::1", "far"))}
	svc := web(build.IPs("fd00:96::1"), nodePorts(30080))
	none := func(f string) string {
		return fmt.Sprintf("note: node ports are not served over %s: no %[1]s address of this node is chosen for them", f)
	}
	cluster := []string{"ClusterIP 10.96.0.1:80/tcp -> 10.0.0.1:8080", "ClusterIP [fd00:96::1]:80/tcp -> [fd00::1]:8080"}

	t.Run("none", func(t *testing.T) {
		expectFull(t, plan.New(here).Compile(svc.ID, svc, slices), append(cluster, none("IPv4"), none("IPv6"))...)
	})
	t.Run("one of the families", func(t *testing.T) {
		opts := at(model.Host{NodePorts: addrs("192.0.2.10")})
		expectFull(t, plan.New(opts).Compile(svc.ID, svc, slices), cluster[0],
			"NodePort 192.0.2.10:30080/tcp -> 10.0.0.1:8080", cluster[1], none("IPv6"))
	})
	t.Run("a family that the Service does not have", func(t *testing.T) {
		svc, opts := web(nodePorts(30080)), at(model.Host{NodePorts: addrs("192.0.2.10")})
		expectFull(t, plan.New(opts).Compile(svc.ID, svc, slices), cluster[0], "NodePort 192.0.2.10:30080/tcp -> 10.0.0.1:8080")
	})
	t.Run("no node ports", func(t *testing.T) {
		svc := web()
		expectFull(t, plan.New(here).Compile(svc.ID, svc, slices), cluster[0])
	})
}

// TestAddressesOfNodesAreNotBound holds decision 10.
func TestAddressesOfNodesAreNotBound(t *testing.T) {
	opts := at(model.Host{
		Links:     onLinks("eth0=192.0.2.10", "nodelocaldns=10.96.0.1"),
		Gateways:  []netip.Addr{addr("192.0.2.1")},
		Nodes:     map[netip.Addr]string{addr("198.51.100.7"): "far"},
		NodePorts: addrs("192.0.2.10"),
	})
	svc := web(nodePorts(30080), externalIPs("198.51.100.7", "198.51.100.8", "192.0.2.1"), ingress("192.0.2.10", "198.51.100.7"))
	expectFull(t, plan.New(opts).Compile(svc.ID, svc, []model.Slice{webSlice("a", ready("10.0.0.1", "far"))}),
		"ClusterIP 10.96.0.1:80/tcp unbound -> 10.0.0.1:8080",
		"ExternalIP 192.0.2.1:80/tcp unbound -> 10.0.0.1:8080",
		"LoadBalancer 192.0.2.10:80/tcp unbound -> 10.0.0.1:8080",
		"NodePort 192.0.2.10:30080/tcp -> 10.0.0.1:8080",
		"ExternalIP 198.51.100.7:80/tcp unbound -> 10.0.0.1:8080",
		"ExternalIP 198.51.100.8:80/tcp -> 10.0.0.1:8080",
		"unbound 10.96.0.1", "unbound 192.0.2.1", "unbound 192.0.2.10", "unbound 198.51.100.7",
		"note: 10.96.0.1 is not bound on this node: it is an address of this node, on link nodelocaldns (VIPConflictsWithNode)",
		"note: 192.0.2.1 is not bound on this node: it is the default gateway of this node (VIPConflictsWithNode)",
		"note: 192.0.2.10 is not bound on this node: it is an address of this node, on link eth0 (VIPConflictsWithNode)",
		`note: 198.51.100.7 is not bound on this node: it is an address of node "far" (VIPConflictsWithNode)`,
		"note: load-balancer address 198.51.100.7 is its external IP already: it answers there once, as that")
}
