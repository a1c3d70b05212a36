package plan_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/plan"
	"github.com/kube-ipvs/kube-ipvs/internal/testkit/build"
)

// TestTrafficPolicies is the truth table of internal/DECISIONS.md, Traffic policies: the
// frontends and backends for each pair of policies, by the nodes of the endpoints.
func TestTrafficPolicies(t *testing.T) {
	const (
		iTP = "internalTrafficPolicy is Local and no endpoint on this node is ready: no backends"
		eTP = "externalTrafficPolicy is Local and no endpoint on this node is ready: no backends"
	)
	both := []model.Endpoint{ready("10.0.0.1", "here"), ready("10.0.0.2", "far")}
	away := []model.Endpoint{leaving("10.0.0.2", "far")}
	gone := []model.Endpoint{unready("10.0.0.1", "here"), dead("10.0.0.2", "far")}
	notReady := "note: 10.96.0.1:80/tcp: none of its endpoints is ready (of 2): no backends"
	internal, external := build.InternalLocal(), externalLocal()

	for _, tt := range []struct {
		name string
		opts []func(*model.Service)
		eps  []model.Endpoint
		want []string
	}{
		{"Cluster, Cluster: both", nil, both, []string{
			"ClusterIP 10.96.0.1:80/tcp -> 10.0.0.1:8080 10.0.0.2:8080",
			"NodePort 192.0.2.10:30080/tcp -> 10.0.0.1:8080 10.0.0.2:8080"}},
		{"Cluster, Cluster: away", nil, away, []string{
			"ClusterIP 10.96.0.1:80/tcp -> 10.0.0.2:8080",
			"NodePort 192.0.2.10:30080/tcp -> 10.0.0.2:8080"}},
		{"Cluster, Cluster: gone", nil, gone, []string{
			"ClusterIP 10.96.0.1:80/tcp ->",
			"NodePort 192.0.2.10:30080/tcp ->", notReady}},
		{"Local, Cluster: both", []func(*model.Service){internal}, both, []string{
			"ClusterIP 10.96.0.1:80/tcp local -> 10.0.0.1:8080",
			"NodePort 192.0.2.10:30080/tcp -> 10.0.0.1:8080 10.0.0.2:8080"}},
		{"Local, Cluster: away", []func(*model.Service){internal}, away, []string{
			"ClusterIP 10.96.0.1:80/tcp local silent ->",
			"NodePort 192.0.2.10:30080/tcp -> 10.0.0.2:8080",
			"note: 10.96.0.1:80/tcp: " + iTP}},
		{"Local, Cluster: gone", []func(*model.Service){internal}, gone, []string{
			"ClusterIP 10.96.0.1:80/tcp local ->",
			"NodePort 192.0.2.10:30080/tcp ->", notReady}},
		{"Cluster, Local: both", []func(*model.Service){external}, both, []string{
			"ClusterIP 10.96.0.1:80/tcp -> 10.0.0.1:8080 10.0.0.2:8080",
			"NodePort 192.0.2.10:30080/tcp local detour 10.96.0.1:80 -> 10.0.0.1:8080"}},
		{"Cluster, Local: away", []func(*model.Service){external}, away, []string{
			"ClusterIP 10.96.0.1:80/tcp -> 10.0.0.2:8080",
			"NodePort 192.0.2.10:30080/tcp local silent detour 10.96.0.1:80 ->",
			"note: IPv4 port 80/tcp from outside: " + eTP}},
		{"Cluster, Local: gone", []func(*model.Service){external}, gone, []string{
			"ClusterIP 10.96.0.1:80/tcp ->",
			"NodePort 192.0.2.10:30080/tcp local detour 10.96.0.1:80 ->", notReady}},
		{"Local, Local: both", []func(*model.Service){internal, external}, both, []string{
			"ClusterIP 10.96.0.1:80/tcp local -> 10.0.0.1:8080",
			"Detour 10.96.0.1:32848/tcp -> 10.0.0.1:8080 10.0.0.2:8080",
			"NodePort 192.0.2.10:30080/tcp local detour 10.96.0.1:32848 -> 10.0.0.1:8080"}},
		{"Local, Local: away", []func(*model.Service){internal, external}, away, []string{
			"ClusterIP 10.96.0.1:80/tcp local silent ->",
			"Detour 10.96.0.1:32848/tcp -> 10.0.0.2:8080",
			"NodePort 192.0.2.10:30080/tcp local silent detour 10.96.0.1:32848 ->",
			"note: 10.96.0.1:80/tcp: " + iTP,
			"note: IPv4 port 80/tcp from outside: " + eTP}},
		{"Local, Local: gone", []func(*model.Service){internal, external}, gone, []string{
			"ClusterIP 10.96.0.1:80/tcp local ->",
			"Detour 10.96.0.1:32848/tcp ->",
			"NodePort 192.0.2.10:30080/tcp local detour 10.96.0.1:32848 ->", notReady}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			svc := web(append(tt.opts, nodePorts(30080))...)
			expectFull(t, plan.New(dualNode).Compile(svc.ID, svc, []model.Slice{webSlice("a", tt.eps...)}), tt.want...)
		})
	}
}

// A policy without frontends that it governs changes nothing.
func TestExternalPolicyWithoutExternalFrontends(t *testing.T) {
	const left = "remark: load-balancer address 203.0.113.1 is left to the load balancer (ipMode Proxy)"
	t.Run("internal Cluster", func(t *testing.T) {
		svc := web(externalLocal(), proxied("203.0.113.1"))
		expectFull(t, compile(svc, webSlice("a", ready("10.0.0.1", "far"))), "ClusterIP 10.96.0.1:80/tcp -> 10.0.0.1:8080", left)
	})
	t.Run("internal Local", func(t *testing.T) {
		svc := web(externalLocal(), proxied("203.0.113.1"), build.InternalLocal())
		expectFull(t, compile(svc, webSlice("a", ready("10.0.0.1", "here"))), "ClusterIP 10.96.0.1:80/tcp local -> 10.0.0.1:8080", left)
	})
}

// One cause is one note, however many addresses it empties.
func TestEmptyExternalFrontendsAreNotedOnce(t *testing.T) {
	svc := web(externalLocal(), nodePorts(30080), externalIPs("198.51.100.1", "198.51.100.2"), ingress("203.0.113.1"))
	p := plan.New(dualNode).Compile(svc.ID, svc, []model.Slice{webSlice("a", ready("10.0.0.1", "far"))})
	want := "IPv4 port 80/tcp from outside: externalTrafficPolicy is Local and no endpoint on this node is ready: no backends"
	if len(p.Notes) != 1 || p.Notes[0] != (model.Note{Code: model.NoLocalEndpoints, Text: want}) {
		t.Errorf("notes %q, want %q", p.Notes, want)
	}
}

// detours prints where the external frontends of each port lead: 80/tcp>32848.
func detours(p model.ServicePlan) string {
	var out []string
	for _, f := range p.Frontends {
		if f.Kind == model.KindExternalIP {
			out = append(out, fmt.Sprintf("%d/%s>%d", f.Key.Port, f.Key.Protocol, f.Detour.Port()))
		}
	}
	return strings.Join(out, " ")
}

func TestShadowPorts(t *testing.T) {
	udp := func(name string, port uint16) func(*model.Service) { return build.PortOver(model.UDP, name, port) }
	for _, tt := range []struct {
		name  string
		ports []func(*model.Service)
		want  string
	}{
		{"one", []func(*model.Service){build.Port("a", 80)}, "80/tcp>32848"},
		{"each by its own number", []func(*model.Service){build.Port("a", 443), build.Port("b", 80)}, "80/tcp>32848 443/tcp>33211"},
		{"each protocol for itself", []func(*model.Service){build.Port("a", 53), udp("b", 53), udp("c", 54)}, "53/tcp>32821 53/udp>32821 54/udp>32822"},
		{"past the Service's own ports", []func(*model.Service){build.Port("a", 80), build.Port("b", 32848), build.Port("c", 32847)}, "80/tcp>32846 32847/tcp>79 32848/tcp>78"},
		{"a port of the other protocol is free", []func(*model.Service){build.Port("a", 80), udp("b", 32848)}, "80/tcp>32848 32848/udp>80"},
		{"past its node ports", []func(*model.Service){build.Port("a", 80), nodePorts(32848)}, "80/tcp>32847"},
		{"never 0", []func(*model.Service){build.Port("a", 32768)}, "32768/tcp>65535"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			svc := build.Service("web", append(tt.ports, build.IPs("10.96.0.1"), build.InternalLocal(), externalLocal(), externalIPs("198.51.100.1"))...)
			if got := detours(compile(svc)); got != tt.want {
				t.Errorf("detours %s, want %s", got, tt.want)
			}
		})
	}
}

// The cost is that of the ports: once it was their cube.
func TestShadowPortsOfManyPorts(t *testing.T) {
	ports := []func(*model.Service){build.IPs("10.96.0.1"), build.InternalLocal(), externalLocal(), externalIPs("198.51.100.1")}
	for n := range uint16(20_000) {
		ports = append(ports, build.Port(fmt.Sprint("p", n), n+1))
	}
	svc, opts := build.Service("web", ports...), here
	opts.MaxFrontends = 3 * 20_000
	p := plan.New(opts).Compile(svc.ID, svc, nil)
	seen := map[model.FrontendKey]bool{}
	for _, f := range p.Frontends {
		if seen[f.Key] {
			t.Fatalf("%s twice", f.Key)
		}
		seen[f.Key] = true
	}
	if len(seen) != 3*20_000 {
		t.Errorf("%d frontends", len(seen))
	}
}

// Only ports that something outside can reach get a Detour frontend, and those
// that do not keep their number free: nothing moves when they become reachable.
func TestDetourOfSomePorts(t *testing.T) {
	svc := web(build.Port("x", 81), nodePorts(0, 30081), build.InternalLocal(), externalLocal())
	opts := at(model.Host{NodePorts: addrs("192.0.2.10")})
	p := plan.New(opts).Compile(svc.ID, svc, []model.Slice{build.Slice("web", "a", build.Target("http", 8080), build.Target("x", 8081),
		build.Endpoints(ready("10.0.0.1", "here"), ready("10.0.0.2", "far")))})
	expectFull(t, p,
		"ClusterIP 10.96.0.1:80/tcp local -> 10.0.0.1:8080",
		"ClusterIP 10.96.0.1:81/tcp local -> 10.0.0.1:8081",
		"Detour 10.96.0.1:32849/tcp -> 10.0.0.1:8081 10.0.0.2:8081",
		"NodePort 192.0.2.10:30081/tcp local detour 10.96.0.1:32849 -> 10.0.0.1:8081")
}

// A Detour frontend is bound where its cluster IP is, in each family.
func TestDetourFollowsItsClusterIP(t *testing.T) {
	opts := at(model.Host{Links: onLinks("nodelocaldns=10.96.0.1")})
	svc := web(build.IPs("fd00:96::1"), externalIPs("198.51.100.1", "2001:db8::1"), build.InternalLocal(), externalLocal())
	p := plan.New(opts).Compile(svc.ID, svc, []model.Slice{webSlice("a", ready("10.0.0.1", "here")), webSlice("b", ready("fd00::1", "here"))})
	expectFull(t, p,
		"ClusterIP 10.96.0.1:80/tcp unbound local -> 10.0.0.1:8080",
		"Detour 10.96.0.1:32848/tcp unbound -> 10.0.0.1:8080",
		"ExternalIP 198.51.100.1:80/tcp local detour 10.96.0.1:32848 -> 10.0.0.1:8080",
		"ExternalIP [2001:db8::1]:80/tcp local detour [fd00:96::1]:32848 -> [fd00::1]:8080",
		"ClusterIP [fd00:96::1]:80/tcp local -> [fd00::1]:8080",
		"Detour [fd00:96::1]:32848/tcp -> [fd00::1]:8080",
		"unbound 10.96.0.1",
		"note: 10.96.0.1 is not bound on this node: it is an address of this node, on link nodelocaldns (VIPConflictsWithNode)")
}
