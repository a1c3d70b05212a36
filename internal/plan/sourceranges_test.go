package plan_test

import (
	"testing"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/plan"
	"github.com/kube-ipvs/kube-ipvs/internal/testkit/build"
)

// lbLines prints the load-balancer frontends of a plan, of which the rows below
// have one a family.
func lbLines(p model.ServicePlan) (out [2]string) {
	for _, f := range p.Frontends {
		if f.Kind != model.KindLoadBalancer {
			continue
		}
		if model.FamilyOf(f.Key.Addr) == model.IPv4 {
			out[0] = full(f)
		} else {
			out[1] = full(f)
		}
	}
	return out
}

func TestSourceRanges(t *testing.T) {
	node := func(all ...string) model.Host {
		return model.Host{Node: model.Node{Addresses: addrs(all...)}, Links: onLinks("eth0=10.1.1.1", "eth0=fd00:1::1")}
	}
	const v4, v6 = "LoadBalancer 203.0.113.1:80/tcp", "LoadBalancer [2001:db8::f]:80/tcp"
	for _, tt := range []struct {
		name   string
		host   model.Host
		ranges []string
		v4, v6 string
	}{
		{"none", node("10.1.1.1"), nil, v4, v6},
		{"of each family", node("192.0.2.1"), []string{"10.0.0.0/8", "172.16.0.0/12", "fd00::/8"}, v4 + " from 10.0.0.0/8 from 172.16.0.0/12", v6 + " from fd00::/8"},
		{"of one family leave the other open", node("192.0.2.1"), []string{"10.0.0.0/8"}, v4 + " from 10.0.0.0/8", v6},
		{"everything is no filter", node("10.1.1.1"), []string{"0.0.0.0/0", "10.0.0.0/8", "fd00::/8"}, v4, v6 + " from fd00::/8"},
		{"everything of the other family", node("192.0.2.1"), []string{"10.0.0.0/8", "::/0"}, v4 + " from 10.0.0.0/8", v6},
		{"the node is in one", node("192.0.2.1", "10.1.1.1"), []string{"10.0.0.0/8", "fd00::/8"}, v4 + " from 10.0.0.0/8 and this node", v6 + " from fd00::/8"},
		{"the node by its links, without a Node", node(), []string{"10.0.0.0/8", "fd00:2::/32"}, v4 + " from 10.0.0.0/8 and this node", v6 + " from fd00:2::/32"},
		{"the links do not count beside a Node", node("192.0.2.1"), []string{"10.1.1.1/32", "fd00:1::1/128"}, v4 + " from 10.1.1.1/32", v6 + " from fd00:1::1/128"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			svc := web(build.IPs("fd00:96::1"), ingress("203.0.113.1", "2001:db8::f"), ranges(tt.ranges...))
			got := lbLines(plan.New(at(tt.host)).Compile(svc.ID, svc, nil))
			if want := [2]string{tt.v4 + " ->", tt.v6 + " ->"}; got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}

// A client that a load balancer excludes may still connect through another frontend.
func TestSourceRangesAreForLoadBalancersOnly(t *testing.T) {
	svc := web(nodePorts(30080), externalIPs("198.51.100.1"), ingress("203.0.113.1"), ranges("10.0.0.0/8"))
	expectFull(t, plan.New(dualNode).Compile(svc.ID, svc, []model.Slice{webSlice("a", ready("10.0.0.1", "far"))}),
		"ClusterIP 10.96.0.1:80/tcp -> 10.0.0.1:8080",
		"NodePort 192.0.2.10:30080/tcp -> 10.0.0.1:8080",
		"ExternalIP 198.51.100.1:80/tcp -> 10.0.0.1:8080",
		"LoadBalancer 203.0.113.1:80/tcp from 10.0.0.0/8 -> 10.0.0.1:8080")
}
