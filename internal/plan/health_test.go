package plan_test

import (
	"testing"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/plan"
	"github.com/kube-ipvs/kube-ipvs/internal/testkit/build"
)

func healthPort(n uint16) func(*model.Service) {
	return func(s *model.Service) { s.HealthCheckNodePort = n }
}

// TestHealthCheck has the cases of kube-proxy's Test_HealthCheckNodePortWhenTerminating and
// Test_updateEndpointsMap (pkg/proxy/ipvs/proxier_test.go), and more.
func TestHealthCheck(t *testing.T) {
	local := []func(*model.Service){ingress("203.0.113.1"), externalLocal(), healthPort(32000)}
	svc := func(opts ...func(*model.Service)) *model.Service { return web(append(local, opts...)...) }
	other := build.Slice("web", "o", build.Target("other", 9), build.Endpoints(ready(a1, "here"), ready(a5, "here")))
	only := func(n int) model.HealthCheck {
		return model.HealthCheck{Port: 32000, IPv4: model.LocalEndpoints{Served: true, Ready: n}, IPv6: model.LocalEndpoints{Served: true, Other: true, Ready: n}}
	}

	for _, tt := range []struct {
		name   string
		svc    *model.Service
		slices []model.Slice
		want   model.HealthCheck
	}{
		{"none asked for", web(ingress("203.0.113.1")), []model.Slice{webSlice("a", ready(a1, "here"))}, model.HealthCheck{}},
		{"no endpoints", svc(), nil, only(0)},
		{"ready ones on this node", svc(), []model.Slice{webSlice("a", ready(a1, "here"), ready(a2, "here"), ready(a3, "far"), unready(a4, "here"))}, only(2)},
		{"leaving ones get traffic but do not count", svc(), []model.Slice{webSlice("a", leaving(a1, "here"), leaving(a2, "here"))}, only(0)},
		{"an address under two numbers is one", svc(), []model.Slice{webSlice("a", ready(a1, "here")), build.Slice("web", "b", build.Target("http", 9), build.Endpoints(ready(a1, "here")))}, only(1)},
		{"over all ports, each address once", svc(build.Port("other", 81)), []model.Slice{webSlice("a", ready(a1, "here"), ready(a2, "here")), other}, only(3)},
		{"a slice that no port joins", svc(), []model.Slice{webSlice("a", ready(a1, "here")), other}, only(1)},
		{"hints play no part", svc(), []model.Slice{webSlice("a", zones(ready(a1, "here"), "z2"), zones(ready(a2, "far"), "z1"))}, only(1)},
		{"both families", svc(build.IPs("fd00:96::1")), []model.Slice{webSlice("a", ready(a1, "here")), webSlice("b", ready("fd00::1", "here"), ready("fd00::2", "here"))},
			model.HealthCheck{Port: 32000, IPv4: model.LocalEndpoints{Served: true, Ready: 1}, IPv6: model.LocalEndpoints{Served: true, Ready: 2}}},
		{"endpoints of a family that is not served", svc(), []model.Slice{webSlice("b", ready("fd00::1", "here"))}, only(0)},
		{"a Service that is skipped", build.Service("web", append(local, build.Port("http", 80))...), []model.Slice{webSlice("a", ready(a1, "here"))}, model.HealthCheck{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := compile(tt.svc, tt.slices...).Health; got != tt.want {
				t.Errorf("health %+v, want %+v", got, tt.want)
			}
		})
	}
}

// TestHealthOfAFamilyThatTheNodeLacks: nothing is opened in a family that the node has not.
func TestHealthOfAFamilyThatTheNodeLacks(t *testing.T) {
	o := here
	o.IPv6 = false
	svc := web(ingress("203.0.113.1"), externalLocal(), healthPort(32000))
	want := model.HealthCheck{Port: 32000, IPv4: model.LocalEndpoints{Served: true, Ready: 1}}
	if got := plan.New(o).Compile(svc.ID, svc, []model.Slice{webSlice("a", ready(a1, "here"))}).Health; got != want {
		t.Errorf("health %+v, want %+v", got, want)
	}
}

func TestHealthOnANodeWithoutAName(t *testing.T) {
	o := here
	o.Node = ""
	svc := web(ingress("203.0.113.1"), externalLocal(), healthPort(32000))
	if got := plan.New(o).Compile(svc.ID, svc, []model.Slice{webSlice("a", ready(a1, ""))}).Health.IPv4.Ready; got != 0 {
		t.Errorf("%d ready endpoints here, want none: where they are is not known", got)
	}
}

// TestTerminatingUnderPolicyLocal: load balancers leave a node whose last ready endpoint terminates, and it still
// serves meanwhile.
func TestTerminatingUnderPolicyLocal(t *testing.T) {
	for _, tt := range []struct {
		name string
		svc  *model.Service
		of   []model.Endpoint
		want bool
	}{
		{"ready ones", web(ingress("203.0.113.1"), externalLocal()), []model.Endpoint{ready(a1, "here"), leaving(a2, "here")}, false},
		{"the last ones terminate", web(ingress("203.0.113.1"), externalLocal()), []model.Endpoint{leaving(a1, "here"), ready(a2, "far")}, true},
		{"none here", web(ingress("203.0.113.1"), externalLocal()), []model.Endpoint{ready(a2, "far")}, false},
		{"policy Cluster", web(ingress("203.0.113.1")), []model.Endpoint{leaving(a1, "here")}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, f := range compile(tt.svc, webSlice("a", tt.of...)).Frontends {
				if got, want := f.Terminating, tt.want && f.Kind == model.KindLoadBalancer; got != want {
					t.Errorf("%s: terminating %v, want %v", f.Key, got, want)
				}
			}
		})
	}
}
