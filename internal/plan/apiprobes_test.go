package plan_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/plan"
	"github.com/kube-ipvs/kube-ipvs/internal/testkit/build"
)

// failing is a node whose probes of these endpoints fail.
func failing(endpoints ...string) plan.Options {
	o := here
	o.Host.Failing = map[netip.AddrPort]string{}
	for _, e := range endpoints {
		o.Host.Failing[netip.MustParseAddrPort(e)] = "silence"
	}
	return o
}

// apiServer is the Service of the API servers.
func apiServer(opts ...func(*model.Service)) *model.Service {
	return build.Service("kubernetes", append([]func(*model.Service){build.IPs("10.96.0.1"), build.Port("https", 443)}, opts...)...)
}

// TestProbes: an API server that fails its probes gets weight 0 and a note, unless fewer than half
// would be left. No other Service is probed.
func TestProbes(t *testing.T) {
	three := []model.Endpoint{ready("192.0.2.1", "here"), ready("192.0.2.2", "far"), ready("192.0.2.3", "far")}
	all := func(name string, eps ...model.Endpoint) []model.Slice {
		return []model.Slice{build.Slice(name, "s", build.Target("https", 6443), build.Endpoints(eps...))}
	}
	web := apiServer()
	web.ID.Name = "web"
	weightless := all("kubernetes", three...)
	weightless[0].Weight = new(uint16(0))
	const left = "EndpointFailsProbe: endpoint 192.0.2.2:6443 gets no new connections: it fails its probes: silence"
	for _, tt := range []struct {
		name   string
		opts   plan.Options
		svc    *model.Service
		slices []model.Slice
		want   string // weights of the endpoints
		notes  string
	}{
		{"none fails", here, apiServer(), all("kubernetes", three...), "1 1 1", ""},
		{"one of three", failing("192.0.2.2:6443"), apiServer(), all("kubernetes", three...), "1 0 1", left},
		{"one of two", failing("192.0.2.2:6443"), apiServer(), all("kubernetes", three[:2]...), "1 0", left},
		{"two of three", failing("192.0.2.2:6443", "192.0.2.3:6443"), apiServer(), all("kubernetes", three...), "1 1 1",
			"ProbesIgnored: 2 of 3 endpoints fail their probes: these are ignored, because fewer than half would be left"},
		{"the only one", failing("192.0.2.1:6443"), apiServer(), all("kubernetes", three[:1]...), "1",
			"ProbesIgnored: 1 of 1 endpoints fail their probes: these are ignored, because fewer than half would be left"},
		{"all on this node", failing("192.0.2.1:6443"), apiServer(build.InternalLocal()), all("kubernetes", three...), "1",
			"ProbesIgnored: 1 of 1 endpoints fail their probes: these are ignored, because fewer than half would be left"},
		{"another port", failing("192.0.2.2:8443"), apiServer(), all("kubernetes", three...), "1 1 1", ""},
		{"an endpoint of another Service", failing("192.0.2.2:6443"), web, all("web", three...), "1 1 1", ""},
		{"one that is not ready", failing("192.0.2.2:6443"), apiServer(), all("kubernetes", three[0], unready("192.0.2.2", "far"), three[2]), "1 1", ""},
		{"weight 0 for all anyway", failing("192.0.2.2:6443"), apiServer(), weightless, "0 0 0", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, noPolicy := range []bool{false, true} {
				if noPolicy && tt.slices[0].Weight != nil {
					continue // iptables mode knows no annotation
				}
				tt.opts.NoPolicy, tt.opts.NoBinding = noPolicy, noPolicy
				p := plan.New(tt.opts).Compile(tt.svc.ID, tt.svc, tt.slices)
				var weights, notes []string
				for _, b := range p.Frontends[0].Backends {
					weights = append(weights, string(rune('0'+b.Weight)))
				}
				for _, n := range p.Notes {
					notes = append(notes, string(n.Code)+": "+n.Text)
				}
				if got := strings.Join(weights, " "); got != tt.want {
					t.Errorf("weights %s, want %s", got, tt.want)
				}
				if got := strings.Join(notes, "\n"); got != tt.notes {
					t.Errorf("notes %q, want %q", got, tt.notes)
				}
			}
		})
	}
}

// TestProbesOverUDP: a port over UDP is never probed, whatever has the same number.
func TestProbesOverUDP(t *testing.T) {
	svc := build.Service("kubernetes", build.IPs("10.96.0.1"), build.PortOver(model.UDP, "https", 443))
	s := build.Slice("kubernetes", "s", build.TargetOver(model.UDP, "https", 6443), build.Endpoints(ready("192.0.2.1", "far"), ready("192.0.2.2", "far")))
	p := plan.New(failing("192.0.2.2:6443")).Compile(svc.ID, svc, []model.Slice{s})
	if diff := cmp.Diff([]model.Backend{{Addr: netip.MustParseAddrPort("192.0.2.1:6443"), Weight: 1}, {Addr: netip.MustParseAddrPort("192.0.2.2:6443"), Weight: 1}},
		p.Frontends[0].Backends, values); diff != "" {
		t.Errorf("backends (-want +got):\n%s", diff)
	}
}

// TestProbesAreExplained: the verdict on an endpoint names the effect of its probes.
func TestProbesAreExplained(t *testing.T) {
	s := build.Slice("kubernetes", "s", build.Target("https", 6443), build.Endpoints(ready("192.0.2.1", "far"), ready("192.0.2.2", "far"), ready("192.0.2.3", "far")))
	for _, tt := range []struct {
		opts plan.Options
		want model.Verdict
	}{
		{here, model.Verdict{Use: model.UseBackend, Weight: 1}},
		{failing("192.0.2.2:6443"), model.Verdict{Use: model.UseDrained, Why: "weight 0, because it fails its probes: silence"}},
		{failing("192.0.2.2:6443", "192.0.2.3:6443"), model.Verdict{Use: model.UseBackend, Weight: 1,
			Why: "it fails its probes, which are ignored, because fewer than half would be left: silence"}},
	} {
		stories := plan.New(tt.opts).Explain(apiServer().ID, apiServer(), []model.Slice{s})
		i := slices.IndexFunc(stories[0].Endpoints, func(e model.EndpointStory) bool { return e.Address == netip.MustParseAddrPort("192.0.2.2:6443") })
		if diff := cmp.Diff(tt.want, *stories[0].Endpoints[i].Cluster); diff != "" {
			t.Errorf("verdict (-want +got):\n%s", diff)
		}
	}
}

// TestProbesConcernOneService: a result of probes has the Service of the API servers compiled, and
// no other.
func TestProbesConcernOneService(t *testing.T) {
	now := failing("192.0.2.2:6443")
	for svc, want := range map[*model.Service]bool{apiServer(): true, web(): false} {
		if got := now.Affects(here, svc, nil); got != want {
			t.Errorf("%s: concerned %t, want %t", svc.ID, got, want)
		}
		if now.Affects(failing("192.0.2.2:6443"), svc, nil) {
			t.Errorf("%s: concerned by the same result", svc.ID)
		}
	}
}
