package plan_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/plan"
	"github.com/kube-ipvs/kube-ipvs/internal/testkit/build"
)

// Explain and Compile agree: backends, weights and endpoints that only keep connections are the
// same for every frontend.
func TestExplainAgreesWithCompile(t *testing.T) {
	compared := 0
	eachWorld(t, func(t *testing.T, _ *rand.Rand, w world) {
		stories := plan.New(w.opts).Explain(w.svc.ID, w.svc, w.slices)
		p := w.compile()
		if (len(stories) > 0) != (len(p.Frontends) > 0) {
			t.Errorf("%d ports explained of %d frontends", len(stories), len(p.Frontends))
		}
		for _, f := range p.Frontends {
			i := slices.IndexFunc(stories, func(s model.PortStory) bool { return tells(s, f, w.svc) })
			if i < 0 {
				t.Errorf("%s %s is not explained", f.Kind, f.Key)
				continue
			}
			compared++
			backends, kept := told(stories[i], f.Local)
			if diff := cmp.Diff(f.Backends, backends, values); diff != "" {
				t.Errorf("%s %s: backends (-compiled +explained):\n%s", f.Kind, f.Key, diff)
			}
			if diff := cmp.Diff(f.Kept, kept, values); diff != "" {
				t.Errorf("%s %s: kept (-compiled +explained):\n%s", f.Kind, f.Key, diff)
			}
		}
	})
	if compared < 1000 {
		t.Errorf("%d frontends compared: the worlds tell nothing", compared)
	}
}

// tells reports whether a story is that of a frontend's port; names and numbers may repeat.
func tells(s model.PortStory, f model.Frontend, svc *model.Service) bool {
	return s.Family == model.FamilyOf(f.Key.Addr).String() && s.Name == f.PortName && s.Protocol == f.Key.Protocol.String() &&
		(f.Kind == model.KindDetour || slices.ContainsFunc(svc.Ports, func(p model.ServicePort) bool {
			return p.Port == s.Port && p.Name == s.Name && p.Protocol == f.Key.Protocol && (p.Port == f.Key.Port || f.Kind == model.KindNodePort && p.NodePort == f.Key.Port)
		}))
}

func told(s model.PortStory, local bool) (backends []model.Backend, kept []netip.AddrPort) {
	for _, e := range s.Endpoints {
		switch v := e.Of(local); {
		case v == nil:
		case v.Use.Backend():
			backends = append(backends, model.Backend{Addr: e.Address, Weight: v.Weight})
		case v.Use == model.UseKept:
			kept = append(kept, e.Address)
		}
	}
	return backends, kept
}

func TestExplainSaysWhy(t *testing.T) {
	zoned := func(e model.Endpoint, z string) model.Endpoint { return build.ForZones(e, z) }
	inZone := here
	inZone.Zone = "z1"
	heavy := here
	heavy.Host.Weights = map[string]model.NodeWeight{"far": {}}
	for _, tt := range []struct {
		name   string
		opts   plan.Options
		svc    []func(*model.Service)
		slices []func(*model.Slice)
		want   []string
	}{
		{"conditions", here, nil, []func(*model.Slice){build.Endpoints(
			build.Ready("10.0.0.1", "here"), build.Unready("10.0.0.2", "far"), build.Leaving("10.0.0.3", "far"), build.Dead("10.0.0.4", "far"))},
			[]string{
				"10.0.0.1:8080 cluster used: ", "10.0.0.2:8080 cluster kept: not ready",
				"10.0.0.3:8080 cluster kept: terminating, while others are ready", "10.0.0.4:8080 cluster unused: terminating and no longer serving",
			}},
		{"no endpoint is ready", here, nil, []func(*model.Slice){build.Endpoints(build.Leaving("10.0.0.3", "far"))},
			[]string{"10.0.0.3:8080 cluster used: terminating, and no ready endpoint can be used"}},
		{"policy Local", here, []func(*model.Service){build.InternalLocal()}, []func(*model.Slice){build.Endpoints(build.Ready("10.0.0.1", "far"), build.Ready("10.0.0.2", ""))},
			[]string{`10.0.0.1:8080 local kept: policy Local: it is on node "far"`, "10.0.0.2:8080 local kept: policy Local: it names no node"}},
		{"zones", inZone, nil, []func(*model.Slice){build.Endpoints(zoned(build.Ready("10.0.0.1", "far"), "z1"), zoned(build.Ready("10.0.0.2", "far"), "z2"))},
			[]string{"10.0.0.1:8080 cluster used: ", `10.0.0.2:8080 cluster kept: zone hints: it is for "z2", and this node is in "z1"`}},
		{"weight of a Node", heavy, nil, []func(*model.Slice){build.Endpoints(build.Ready("10.0.0.1", "far"))},
			[]string{`10.0.0.1:8080 cluster drained: weight 0, by annotation of its Node "far"`}},
		{"listed twice", here, nil, []func(*model.Slice){build.Endpoints(build.Ready("10.0.0.1", "far"), build.Dead("10.0.0.1", "here"))},
			[]string{"10.0.0.1:8080 cluster used: ", "10.0.0.1:8080 cluster unused: its address is listed twice, and the entry of EndpointSlice default/web-a counts"}},
		{"no address to send to", here, nil, []func(*model.Slice){build.Endpoints(build.Ready("127.0.0.1", "far"))},
			[]string{"127.0.0.1:8080 cluster unused: a loopback address"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			svc := build.Service("web", append([]func(*model.Service){build.IPs("10.96.0.1"), build.Port("http", 80)}, tt.svc...)...)
			slice := build.Slice("web", "web-a", append([]func(*model.Slice){build.Target("http", 8080)}, tt.slices...)...)
			expectStories(t, plan.New(tt.opts).Explain(svc.ID, svc, []model.Slice{slice}), tt.want...)
		})
	}
}

func TestExplainNamesAPortThatIsMissing(t *testing.T) {
	svc := build.Service("web", build.IPs("10.96.0.1"), build.Port("http", 80))
	slice := build.Slice("web", "web-a", build.Target("www", 8080), build.Endpoints(build.Ready("10.0.0.1", "here")))
	expectStories(t, plan.New(here).Explain(svc.ID, svc, []model.Slice{slice}),
		`10.0.0.1:0 cluster unused: its EndpointSlice has no port named "http" over tcp`)
}

func expectStories(t *testing.T, ports []model.PortStory, want ...string) {
	t.Helper()
	var got []string
	for _, p := range ports {
		for _, e := range p.Endpoints {
			for name, v := range map[string]*model.Verdict{"cluster": e.Cluster, "local": e.Local} {
				if v != nil {
					got = append(got, fmt.Sprintf("%s %s %s: %s", e.Address, name, v.Use, v.Why))
				}
			}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("endpoints (-want +got):\n%s", diff)
	}
}
