package plan_test

import (
	"testing"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/plan"
	"github.com/kube-ipvs/kube-ipvs/internal/testkit/build"
	"github.com/kube-ipvs/kube-ipvs/scheduler"
)

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
				"LoadBalancer 198.51.100.1:80/tcp -> 10.0.0.1:8080 10.0.0.2:8080",
				"LoadBalancer 203.0.113.1:80/tcp -> 10.0.0.1:8080 10.0.0.2:8080",
				"note: external IP 10.96.0.1 is its cluster IP already: it is served once, as that",
				"note: external IP 198.51.100.1 is its load-balancer address already: it is served once, as that",
				"note: load-balancer address 10.96.0.1 is its cluster IP already: it is served once, as that",
			},
		},
		{
			name: "an external IP leaves the source ranges in force",
			svc:  web(externalIPs("198.51.100.1"), ingress("198.51.100.1"), ranges("10.0.0.0/8")),
			want: []string{
				"ClusterIP 10.96.0.1:80/tcp -> 10.0.0.1:8080 10.0.0.2:8080",
				"LoadBalancer 198.51.100.1:80/tcp from 10.0.0.0/8 -> 10.0.0.1:8080 10.0.0.2:8080",
				"note: external IP 198.51.100.1 is its load-balancer address already: it is served once, as that",
			},
		},
		{
			name: "a cluster IP has none",
			svc:  web(ingress("10.96.0.1"), ranges("10.0.0.0/8")),
			want: []string{
				"ClusterIP 10.96.0.1:80/tcp -> 10.0.0.1:8080 10.0.0.2:8080",
				"note: load-balancer address 10.96.0.1 is its cluster IP already: it is served once, as that, without loadBalancerSourceRanges",
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
				`note: node port 30080/tcp of port "http" is not served on 192.0.2.10: port "high" of its external IP is`,
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
				`note: node port 30080/tcp is listed twice: port "z" is not served there`,
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

// A Service with many addresses has one list for each policy, and only one where
// both come to the same.
func TestListsAreShared(t *testing.T) {
	svc := web(nodePorts(30080), externalIPs("198.51.100.1"), ingress("203.0.113.1"), build.InternalLocal(), externalLocal())
	for _, tt := range []struct {
		name string
		eps  []model.Endpoint
		want int
	}{
		{"some here", []model.Endpoint{ready(a1, "here"), ready(a2, "far")}, 2},
		{"all here", []model.Endpoint{ready(a1, "here"), ready(a2, "here")}, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			lists := map[*model.Backend]bool{}
			for _, f := range plan.New(dualNode).Compile(svc.ID, svc, []model.Slice{webSlice("a", tt.eps...)}).Frontends {
				lists[&f.Backends[0]] = true
			}
			if len(lists) != tt.want {
				t.Errorf("%d lists, want %d", len(lists), tt.want)
			}
		})
	}
}
