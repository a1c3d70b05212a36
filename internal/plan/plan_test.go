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

// here is the node that the tests plan for: "here" in zone "z1", dual stack.
var here = plan.Options{Node: "here", Zone: "z1", IPv4: true, IPv6: true}

// Short names for what nearly every row needs.
var (
	ready, unready, leaving, dead = build.Ready, build.Unready, build.Leaving, build.Dead
	zones, nodes                  = build.ForZones, build.ForNodes
)

// web is a Service with one address and one port, the subject of most tests.
func web(opts ...func(*model.Service)) *model.Service {
	return build.Service("web", append([]func(*model.Service){build.IPs("10.96.0.1"), build.Port("http", 80)}, opts...)...)
}

// webSlice is a slice behind it.
func webSlice(name string, eps ...model.Endpoint) model.Slice {
	return build.Slice("web", name, build.Target("http", 8080), build.Endpoints(eps...))
}

// compile plans for this node.
func compile(svc *model.Service, slices ...model.Slice) model.ServicePlan {
	return plan.New(here).Compile(svc.ID, svc, slices)
}

// lines prints a plan, a line each for frontends, hairpins and remarks:
//
//	10.96.0.1:80/tcp -> 10.244.0.1:8080 10.244.0.2:8080
//	10.96.0.1:80/tcp hairpin 10.244.0.1:8080
func lines(p model.ServicePlan) []string {
	var out []string
	for _, f := range p.Frontends {
		out = append(out, f.Key.String()+" ->"+backendList(f.Backends))
		if len(f.Hairpin) > 0 {
			out = append(out, f.Key.String()+" hairpin"+addrList(f.Hairpin))
		}
	}
	if p.Skipped != "" {
		out = append(out, "skipped: "+p.Skipped)
	}
	for _, n := range p.Notes {
		out = append(out, "note: "+n.Text)
	}
	for _, r := range p.Remarks {
		out = append(out, "remark: "+r.Text)
	}
	return out
}

func backendList(all []model.Backend) string {
	addrs := make([]netip.AddrPort, len(all))
	for i, b := range all {
		addrs[i] = b.Addr
	}
	return addrList(addrs)
}

func addrList(all []netip.AddrPort) string {
	var b strings.Builder
	for _, a := range all {
		fmt.Fprintf(&b, " %s", a)
	}
	return b.String()
}

// expect compares a plan with lines of text.
func expect(t *testing.T, p model.ServicePlan, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, lines(p)); diff != "" {
		t.Errorf("plan (-want +got):\n%s", diff)
	}
}

func TestEveryFieldOfAFrontend(t *testing.T) {
	born := time.Date(2024, 5, 6, 7, 8, 9, 0, time.UTC)
	svc := web(build.Affinity(10800*time.Second), build.Created(born))
	opts := here
	opts.Scheduler = scheduler.MustParse("mh")

	got := plan.New(opts).Compile(svc.ID, svc, []model.Slice{webSlice("a", ready("10.244.0.1", "here"))})

	target := netip.MustParseAddrPort("10.244.0.1:8080")
	want := model.Frontend{
		Key:       model.FrontendKey{Addr: netip.MustParseAddr("10.96.0.1"), Port: 80, Protocol: model.TCP},
		Kind:      model.KindClusterIP,
		Service:   svc.ID,
		PortName:  "http",
		Scheduler: scheduler.MustParse("mh"),
		Affinity:  3 * time.Hour,
		Bind:      true,
		Backends:  []model.Backend{{Addr: target, Weight: 1}},
		Hairpin:   []netip.AddrPort{target},
	}
	if len(got.Frontends) != 1 || !got.Frontends[0].Equal(want) {
		t.Errorf("frontends\n%+v, want\n%+v", got.Frontends, want)
	}
	if got.ID != svc.ID || !got.Created.Equal(born) {
		t.Errorf("plan of %s born %s, want %s born %s", got.ID, got.Created, svc.ID, born)
	}
}

func TestDefaultScheduler(t *testing.T) {
	p := compile(web())
	if got := p.Frontends[0].Scheduler; got != scheduler.MustParse("rr") {
		t.Errorf("scheduler %q, want rr", got)
	}
}

func TestServiceIsGone(t *testing.T) {
	id := build.ID("web")
	got := plan.New(here).Compile(id, nil, []model.Slice{webSlice("a", ready("10.244.0.1", "here"))})
	if got.ID != id || !got.Created.IsZero() {
		t.Errorf("plan of %s born %s, want an empty one of %s", got.ID, got.Created, id)
	}
	expect(t, got)
}

func TestMarksOfTheService(t *testing.T) {
	unnamed := func(s *model.Service) { s.HasProxyName = true }
	named := func(s *model.Service) { s.HasProxyName, s.ProxyName = true, "cilium" }
	external := func(s *model.Service) { s.Type = "ExternalName" }
	headless := func(s *model.Service) { s.Headless, s.ClusterIPs = true, nil }
	withProblem := func(s *model.Service) { s.Problems = []string{`spec.ports[0].port: 70000 is not a port`} }

	for _, tt := range []struct {
		name string
		svc  *model.Service
		want string
	}{
		{"another proxy", web(named), "label service.kubernetes.io/service-proxy-name=cilium: another proxy serves it"},
		{"another proxy without a name", web(unnamed), "label service.kubernetes.io/service-proxy-name=: another proxy serves it"},
		{"ExternalName", web(external), "type ExternalName: clients are sent to a DNS name"},
		{"headless", web(headless), "headless: clients reach the endpoints directly"},
		{"the label outranks the rest", web(named, headless, external), "label service.kubernetes.io/service-proxy-name=cilium: another proxy serves it"},
		{"no address yet", build.Service("web", build.Port("http", 80)), "no cluster IP"},
		{"no ports", build.Service("web", build.IPs("10.96.0.1")), "no ports"},
		{"problems that leave nothing", build.Service("web", build.IPs("10.96.0.1"), withProblem), "no ports; spec.ports[0].port: 70000 is not a port"},
		{"an empty object", build.Service("web"), "no cluster IP; no ports"},
		{"only a bad address", build.Service("web", build.IPs("127.0.0.1"), build.Port("", 80)), "cluster IP 127.0.0.1 is not served: a loopback address"},
		{"only a bad port", build.Service("web", build.IPs("10.96.0.1"), build.Port("http", 0)), `port "http" is not served: it has no number`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := compile(tt.svc, webSlice("a", ready("10.244.0.1", "here")))
			expect(t, p, "skipped: "+tt.want)
		})
	}
}
