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

// asking gives a Service a policy.
func asking(p model.Policy) func(*model.Service) {
	return func(s *model.Service) { s.Policy = &p }
}

// balance prints how a frontend is balanced.
func balance(f model.Frontend) string {
	out := []string{f.Key.String(), f.Scheduler.String()}
	if f.OnePacket {
		out = append(out, "one-packet")
	}
	if f.SlowStart > 0 {
		out = append(out, "slow-start="+f.SlowStart.String())
	}
	if f.Limit != (model.Limit{}) {
		out = append(out, fmt.Sprintf("limit=%d,%d", f.Limit.Upper, f.Limit.Lower))
	}
	for _, b := range f.Backends {
		out = append(out, fmt.Sprintf("%s*%d", b.Addr, b.Weight))
	}
	return strings.Join(out, " ")
}

// TestPolicy: the wishes of annotations, those that are followed, and the notes about the rest.
func TestPolicy(t *testing.T) {
	spec := scheduler.MustParse
	udp := func(s *model.Service) { build.PortOver(model.UDP, "dns", 53)(s) }
	weigh := func(s model.Slice, w uint16) model.Slice { s.Weight = &w; return s }
	plain := webSlice("s1", ready("10.0.0.1", "here"), ready("10.0.0.2", "far"))
	host := func(change func(*model.Host)) plan.Options {
		o := here
		change(&o.Host)
		return o
	}
	const both = " 10.0.0.1:8080*1 10.0.0.2:8080*1"
	for _, tt := range []struct {
		name string
		opts plan.Options
		svc  *model.Service
		from []model.Slice
		want string
		bad  string
	}{
		{"nothing", here, web(), []model.Slice{plain}, "10.96.0.1:80/tcp rr" + both, ""},
		{"a scheduler", here, web(asking(model.Policy{Scheduler: spec("mh")})), []model.Slice{plain}, "10.96.0.1:80/tcp mh (mh-fallback,mh-port)" + both, ""},
		{
			"one that the kernel lacks", host(func(h *model.Host) { h.Refused = map[scheduler.Spec]string{spec("mh"): "module missing"} }),
			web(asking(model.Policy{Scheduler: spec("mh")})), []model.Slice{plain},
			"10.96.0.1:80/tcp rr" + both,
			"metadata.annotations[kube-ipvs.io/scheduler]: mh (mh-fallback,mh-port) is not available on this node (module missing): rr is used",
		},
		{"another that it lacks", host(func(h *model.Host) { h.Refused = map[scheduler.Spec]string{spec("mh"): "x"} }), web(asking(model.Policy{Scheduler: spec("wlc")})), []model.Slice{plain}, "10.96.0.1:80/tcp wlc" + both, ""},
		{
			"one packet, for UDP alone", here, web(udp, asking(model.Policy{OnePacket: true})), []model.Slice{plain},
			"10.96.0.1:53/udp rr one-packet\n10.96.0.1:80/tcp rr" + both, "",
		},
		{
			"one packet without UDP", here, web(asking(model.Policy{OnePacket: true})), []model.Slice{plain}, "10.96.0.1:80/tcp rr" + both,
			"metadata.annotations[kube-ipvs.io/one-packet]: no port of the Service is UDP: no effect",
		},
		{"slow start", here, web(asking(model.Policy{Scheduler: spec("wlc"), SlowStart: time.Minute})), []model.Slice{plain}, "10.96.0.1:80/tcp wlc slow-start=1m0s" + both, ""},
		{
			"slow start of one that knows no weights", here, web(asking(model.Policy{SlowStart: time.Minute})), []model.Slice{plain}, "10.96.0.1:80/tcp rr" + both,
			"metadata.annotations[kube-ipvs.io/slow-start]: scheduler rr does not count connections by weight: new endpoints get their full share at once",
		},
		{
			"slow start of one that hashes", here, web(asking(model.Policy{Scheduler: spec("sh"), SlowStart: time.Minute})), []model.Slice{plain}, "10.96.0.1:80/tcp sh (sh-fallback)" + both,
			"metadata.annotations[kube-ipvs.io/slow-start]: scheduler sh does not count connections by weight: new endpoints get their full share at once",
		},
		{
			"slow start of one that counts connections to a weight", here, web(asking(model.Policy{Scheduler: spec("lblc"), SlowStart: time.Minute})), []model.Slice{plain}, "10.96.0.1:80/tcp lblc" + both,
			"metadata.annotations[kube-ipvs.io/slow-start]: scheduler lblc does not count connections by weight: new endpoints get their full share at once",
		},
		{"a limit", here, web(asking(model.Policy{Limit: model.Limit{Upper: 100, Lower: 50}})), []model.Slice{plain}, "10.96.0.1:80/tcp rr limit=100,50" + both, ""},
		{
			"weights: Node before slice before Service", host(func(h *model.Host) { h.Weights = map[string]model.NodeWeight{"far": {Weight: 9}} }),
			web(asking(model.Policy{Scheduler: spec("wrr"), Weight: new(uint16(2))})),
			[]model.Slice{weigh(webSlice("s1", ready("10.0.0.1", "here"), ready("10.0.0.2", "far")), 5), webSlice("s2", ready("10.0.0.3", "here"))},
			"10.96.0.1:80/tcp wrr 10.0.0.1:8080*5 10.0.0.2:8080*9 10.0.0.3:8080*2", "",
		},
		{
			"a Node without work", host(func(h *model.Host) { h.Weights = map[string]model.NodeWeight{"far": {}} }), web(), []model.Slice{plain},
			"10.96.0.1:80/tcp rr 10.0.0.1:8080*1 10.0.0.2:8080*0", "",
		},
		{
			"a Node with a bad weight", host(func(h *model.Host) { h.Weights = map[string]model.NodeWeight{"far": {Weight: 3, Bad: "heavy"}} }), web(), []model.Slice{plain},
			"10.96.0.1:80/tcp rr" + both, "Node far: heavy",
		},
		{
			"and one that is none of its own", host(func(h *model.Host) { h.Weights = map[string]model.NodeWeight{"farther": {Bad: "heavy"}} }), web(), []model.Slice{plain},
			"10.96.0.1:80/tcp rr" + both, "",
		},
		{
			"a weight that the scheduler passes over", here, web(asking(model.Policy{Weight: new(uint16(2))})), []model.Slice{plain},
			"10.96.0.1:80/tcp rr 10.0.0.1:8080*2 10.0.0.2:8080*2",
			"metadata.annotations[kube-ipvs.io/weight]: scheduler rr ignores weights other than 0: no effect",
		},
		{"no work at all", here, web(asking(model.Policy{Weight: new(uint16(0))})), []model.Slice{plain}, "10.96.0.1:80/tcp rr 10.0.0.1:8080*0 10.0.0.2:8080*0", ""},
		{
			"a mode that follows none", func() plan.Options { o := here; o.NoPolicy = true; return o }(),
			web(asking(model.Policy{Scheduler: spec("mh"), Weight: new(uint16(2)), Limit: model.Limit{Upper: 3}})), []model.Slice{weigh(plain, 5)},
			"10.96.0.1:80/tcp " + both,
			"metadata.annotations[kube-ipvs.io/*] have no effect: this node serves without IPVS, so each backend gets the same share",
		},
		{"skip", here, web(asking(model.Policy{Skip: true})), []model.Slice{plain}, "skipped: annotation kube-ipvs.io/skip: not served on this node", ""},
		{
			"what sources could not read", here,
			web(func(s *model.Service) { s.BadAnnotations = []string{"of the Service"} }),
			[]model.Slice{func() model.Slice { s := plain; s.BadAnnotations = []string{"of the slice"}; return s }()},
			"10.96.0.1:80/tcp rr" + both, "EndpointSlice default/s1: of the slice\nof the Service",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := plan.New(tt.opts).Compile(tt.svc.ID, tt.svc, tt.from)
			var got []string
			for _, f := range p.Frontends {
				got = append(got, balance(f))
			}
			if p.Skipped != "" {
				got = append(got, "skipped: "+p.Skipped)
			}
			if diff := cmp.Diff(tt.want, strings.Join(got, "\n")); diff != "" {
				t.Errorf("frontends (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.bad, strings.Join(p.BadAnnotations, "\n")); diff != "" {
				t.Errorf("annotations that are not followed (-want +got):\n%s", diff)
			}
			for _, bad := range p.BadAnnotations {
				if !strings.Contains(strings.Join(model.NoteTexts(p.Notes), "\n"), bad) {
					t.Errorf("no note says %q", bad)
				}
			}
		})
	}
}

// A Node with another weight, or a kernel with another answer about a scheduler,
// concerns those who look at it.
func TestWhomPolicyConcerns(t *testing.T) {
	before, after := here, here
	after.Host.Weights = map[string]model.NodeWeight{"far": {Weight: 2}}
	after.Host.Refused, after.Host.NoGUE = map[scheduler.Spec]string{scheduler.MustParse("mh"): "x"}, "x"
	there, elsewhere := webSlice("s", ready("10.0.0.1", "far")), webSlice("s", ready("10.0.0.1", "here"))
	for _, tt := range []struct {
		name   string
		svc    *model.Service
		behind *model.Slice
		want   bool
	}{
		{"an endpoint on it", web(), &there, true},
		{"an endpoint elsewhere", web(), &elsewhere, false},
		{"its scheduler", web(asking(model.Policy{Scheduler: scheduler.MustParse("mh")})), &elsewhere, true},
		{"its tunnel", web(asking(model.Policy{Forward: model.ForwardTunnel, GUE: 5555})), &elsewhere, true},
		{"another tunnel", web(asking(model.Policy{Forward: model.ForwardTunnel})), &elsewhere, false},
		{"another scheduler", web(asking(model.Policy{Scheduler: scheduler.MustParse("sh")})), &elsewhere, false},
	} {
		if got := after.Affects(before, tt.svc, []*model.Slice{tt.behind}); got != tt.want {
			t.Errorf("%s: concerned %t, want %t", tt.name, got, tt.want)
		}
	}
	idle := before
	idle.Host.Weights = map[string]model.NodeWeight{"far": {}}
	if !idle.Affects(before, web(), []*model.Slice{&there}) || !before.Affects(idle, web(), []*model.Slice{&there}) {
		t.Error("an endpoint is not concerned by a Node that begins or ends to say weight 0")
	}
	before.Host.Weights = after.Host.Weights
	after.Host.Nodes = map[netip.Addr]string{addr("10.0.0.1"): "far"}
	external := web(asking(model.Policy{Forward: model.ForwardTunnel}))
	if !after.Affects(before, external, []*model.Slice{&there}) {
		t.Error("a Service that asks for a tunnel is not concerned by an endpoint on a Node's network")
	}
	if after.Affects(before, web(), []*model.Slice{&there}) {
		t.Error("a Service that asks for nothing is concerned by an endpoint on a Node's network")
	}
	before.NoPolicy, after.NoPolicy = true, true
	if after.Affects(before, web(), []*model.Slice{&there}) {
		t.Error("a mode that follows no policy is concerned by a weight")
	}
}

// forwarding prints how a frontend forwards, and where clients of this node are taken.
func forwarding(f model.Frontend) string {
	out := fmt.Sprintf("%s %s %s", f.Kind, f.Key, f.Forward)
	if f.GUE != 0 {
		out += fmt.Sprintf(" gue=%d", f.GUE)
	}
	if f.Detour.IsValid() {
		out += " detour=" + f.Detour.String()
	}
	return out
}

// TestForward: which frontends are forwarded as kube-ipvs.io/forward asks, and why others
// are not.
func TestForward(t *testing.T) {
	at80 := func(eps ...model.Endpoint) model.Slice {
		return build.Slice("web", "s", build.Endpoints(eps...), build.Target("http", 80))
	}
	external := func(s *model.Service) { s.Type, s.ExternalIPs = "NodePort", []netip.Addr{addr("203.0.113.1")} }
	balanced := func(s *model.Service) {
		s.Type, s.Ingress = "LoadBalancer", []model.Ingress{{Addr: addr("203.0.113.2")}}
	}
	nodePort := func(s *model.Service) { s.Ports[0].NodePort = 30080 }
	way := func(f model.Forward) func(*model.Service) { return asking(model.Policy{Forward: f}) }
	tunnel, pods := way(model.ForwardTunnel), at80(ready("10.0.0.1", "here"), ready("10.0.0.2", "far"))
	host := func(change func(*model.Host)) plan.Options {
		o := here
		change(&o.Host)
		return o
	}
	const note = "metadata.annotations[kube-ipvs.io/forward]: "
	for _, tt := range []struct {
		name string
		opts plan.Options
		svc  *model.Service
		from model.Slice
		want string
		bad  string
	}{
		{
			"external addresses alone", host(func(h *model.Host) { h.NodePorts = []netip.Addr{addr("192.168.0.1")} }),
			web(tunnel, external, balanced, nodePort), pods,
			"ClusterIP 10.96.0.1:80/tcp nat\nNodePort 192.168.0.1:30080/tcp nat\n" +
				"ExternalIP 203.0.113.1:80/tcp tunnel detour=10.96.0.1:80\nLoadBalancer 203.0.113.2:80/tcp tunnel detour=10.96.0.1:80", "",
		},
		{"dr", here, web(way(model.ForwardDirect), external), pods, "ClusterIP 10.96.0.1:80/tcp nat\nExternalIP 203.0.113.1:80/tcp dr detour=10.96.0.1:80", ""},
		{
			"GUE", here, web(asking(model.Policy{Forward: model.ForwardTunnel, GUE: 5555}), external), pods,
			"ClusterIP 10.96.0.1:80/tcp nat\nExternalIP 203.0.113.1:80/tcp tunnel gue=5555 detour=10.96.0.1:80", "",
		},
		{
			"GUE that the kernel lacks", host(func(h *model.Host) { h.NoGUE = "too old" }), web(asking(model.Policy{Forward: model.ForwardTunnel, GUE: 5555}), external), pods,
			"ClusterIP 10.96.0.1:80/tcp nat\nExternalIP 203.0.113.1:80/tcp nat",
			note + "203.0.113.1:80/tcp is forwarded by nat, not tunnel: metadata.annotations[kube-ipvs.io/tunnel] asks for GUE, which this node cannot use (too old)",
		},
		{"a lack that matters to none", host(func(h *model.Host) { h.NoGUE = "too old" }), web(tunnel, external), pods, "ClusterIP 10.96.0.1:80/tcp nat\nExternalIP 203.0.113.1:80/tcp tunnel detour=10.96.0.1:80", ""},
		{
			"GUE without a tunnel", here, web(asking(model.Policy{Forward: model.ForwardDirect, GUE: 5555}), external), pods,
			"ClusterIP 10.96.0.1:80/tcp nat\nExternalIP 203.0.113.1:80/tcp dr detour=10.96.0.1:80",
			"metadata.annotations[kube-ipvs.io/tunnel]: without metadata.annotations[kube-ipvs.io/forward]: tunnel it has no effect",
		},
		{"nat", here, web(way(model.ForwardNAT), external), pods, "ClusterIP 10.96.0.1:80/tcp nat\nExternalIP 203.0.113.1:80/tcp nat", ""},
		{
			"SCTP", here, web(tunnel, external, func(s *model.Service) { s.Ports[0].Protocol = model.SCTP }),
			build.Slice("web", "s", build.Endpoints(ready("10.0.0.1", "here")), build.TargetOver(model.SCTP, "http", 80)),
			"ClusterIP 10.96.0.1:80/sctp nat\nExternalIP 203.0.113.1:80/sctp tunnel detour=10.96.0.1:80", "",
		},
		{
			"both policies Local", here, web(tunnel, external, func(s *model.Service) { s.InternalLocal, s.ExternalLocal = true, true }), pods,
			"ClusterIP 10.96.0.1:80/tcp nat\nDetour 10.96.0.1:32848/tcp nat\nExternalIP 203.0.113.1:80/tcp tunnel detour=10.96.0.1:32848", "",
		},
		{"no endpoint", here, web(tunnel, external), at80(), "ClusterIP 10.96.0.1:80/tcp nat\nExternalIP 203.0.113.1:80/tcp tunnel detour=10.96.0.1:80", ""},
		{
			"no external address", here, web(tunnel), pods, "ClusterIP 10.96.0.1:80/tcp nat",
			note + "the Service has no external address: no effect",
		},
		{
			"another port", here, web(tunnel, external), webSlice("s", ready("10.0.0.1", "here"), ready("10.0.0.2", "far")),
			"ClusterIP 10.96.0.1:80/tcp nat\nExternalIP 203.0.113.1:80/tcp nat",
			note + "203.0.113.1:80/tcp is forwarded by nat, not tunnel: endpoint 10.0.0.1:8080 is not on port 80, and the port stays in the packet",
		},
		{
			"an endpoint on a Node's network", host(func(h *model.Host) { h.Nodes = map[netip.Addr]string{addr("192.168.0.2"): "far"} }),
			web(tunnel, external), at80(ready("10.0.0.1", "here"), ready("192.168.0.2", "far")),
			"ClusterIP 10.96.0.1:80/tcp nat\nExternalIP 203.0.113.1:80/tcp nat",
			note + `203.0.113.1:80/tcp is forwarded by nat, not tunnel: endpoint 192.168.0.2:80 is an address of node "far", and a pod in the host's network namespace cannot have 203.0.113.1 itself`,
		},
		{
			"an address of this node", host(func(h *model.Host) { h.Links = map[netip.Addr]string{addr("203.0.113.1"): "eth0"} }),
			web(tunnel, external), pods, "ClusterIP 10.96.0.1:80/tcp nat\nExternalIP 203.0.113.1:80/tcp nat",
			note + "203.0.113.1:80/tcp is forwarded by nat, not tunnel: 203.0.113.1 is an address of this node, on link eth0: answers from it would be dropped",
		},
		{
			"a range that is local as a whole", func() plan.Options { o := here; o.Routed = nets("203.0.113.0/24"); return o }(), web(tunnel, external), pods,
			"ClusterIP 10.96.0.1:80/tcp nat\nExternalIP 203.0.113.1:80/tcp nat",
			note + "203.0.113.1:80/tcp is forwarded by nat, not tunnel: 203.0.113.1 is in 203.0.113.0/24, a range that --vip-binding makes local: answers from it would be dropped",
		},
		{
			"a mode that follows none", func() plan.Options { o := here; o.NoPolicy = true; return o }(), web(tunnel, external), pods,
			"ClusterIP 10.96.0.1:80/tcp nat\nExternalIP 203.0.113.1:80/tcp nat",
			"metadata.annotations[kube-ipvs.io/*] have no effect: this node serves without IPVS, so each backend gets the same share",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := plan.New(tt.opts).Compile(tt.svc.ID, tt.svc, []model.Slice{tt.from})
			var got []string
			for _, f := range p.Frontends {
				got = append(got, forwarding(f))
			}
			if diff := cmp.Diff(tt.want, strings.Join(got, "\n")); diff != "" {
				t.Errorf("frontends (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.bad, strings.Join(p.BadAnnotations, "\n")); diff != "" {
				t.Errorf("annotations that are not followed (-want +got):\n%s", diff)
			}
		})
	}
}
