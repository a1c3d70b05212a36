package plan_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/plan"
	"github.com/kube-ipvs/kube-ipvs/internal/testkit/build"
)

func TestFamiliesOfTheNode(t *testing.T) {
	svc := web(build.IPs("fd00:96::1"))
	v4only, v6only := here, here
	v4only.IPv6, v6only.IPv4 = false, false
	slices := []model.Slice{webSlice("a", ready("10.244.0.1", "far")), webSlice("b", ready("fd00:244::1", "far"))}

	t.Run("IPv4", func(t *testing.T) {
		expect(t, plan.New(v4only).Compile(svc.ID, svc, slices),
			"10.96.0.1:80/tcp -> 10.244.0.1:8080",
			"note: cluster IP fd00:96::1 is not served: this node does not serve IPv6")
	})
	t.Run("IPv6", func(t *testing.T) {
		expect(t, plan.New(v6only).Compile(svc.ID, svc, slices),
			"[fd00:96::1]:80/tcp -> [fd00:244::1]:8080",
			"note: cluster IP 10.96.0.1 is not served: this node does not serve IPv4")
	})
	t.Run("the Service has only the other", func(t *testing.T) {
		svc := web()
		expect(t, plan.New(v6only).Compile(svc.ID, svc, slices),
			"skipped: cluster IP 10.96.0.1 is not served: this node does not serve IPv4")
	})
}

func TestAddressesThatNobodyMayBind(t *testing.T) {
	for _, tt := range []struct{ addr, why string }{
		{"127.0.0.1", "a loopback address"},
		{"::1", "a loopback address"},
		{"0.0.0.0", "the unspecified address"},
		{"::", "the unspecified address"},
		{"169.254.20.10", "a link-local address"},
		{"fe80::1", "a link-local address"},
		{"224.0.0.1", "a multicast address"},
		{"ff02::1", "a multicast address"},
		{"::ffff:10.0.0.1", "an IPv4-mapped IPv6 address"},
		{"2001:db8::1%eth0", "an address with a zone"},
	} {
		t.Run(tt.addr, func(t *testing.T) {
			svc := build.Service("web", build.IPs(tt.addr), build.Port("http", 80))
			expect(t, compile(svc), "skipped: cluster IP "+tt.addr+" is not served: "+tt.why)
		})
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
			"remark: load-balancer address 203.0.113.1 is left to the load balancer (ipMode Proxy)"}},
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

// TestAddressesOfNodesAreNotBound checks which addresses are not bound
// (internal/DECISIONS.md, Addresses of other machines).
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
		"LoadBalancer 198.51.100.7:80/tcp unbound -> 10.0.0.1:8080",
		"ExternalIP 198.51.100.8:80/tcp -> 10.0.0.1:8080",
		"unbound 10.96.0.1", "unbound 192.0.2.1", "unbound 192.0.2.10", "unbound 198.51.100.7",
		"note: 10.96.0.1 is not bound on this node: it is an address of this node, on link nodelocaldns (VIPConflictsWithNode)",
		"note: 192.0.2.1 is not bound on this node: it is the default gateway of this node (VIPConflictsWithNode)",
		"note: 192.0.2.10 is not bound on this node: it is an address of this node, on link eth0 (VIPConflictsWithNode)",
		`note: 198.51.100.7 is not bound on this node: it is an address of node "far" (VIPConflictsWithNode)`,
		"note: external IP 198.51.100.7 is its load-balancer address already: it is served once, as that")
}
