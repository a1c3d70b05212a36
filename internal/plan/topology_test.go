package plan_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/plan"
	"github.com/kube-ipvs/kube-ipvs/internal/testkit/build"
)

// lists are the results for the endpoints of one port: the backends under policy Cluster and under
// policy Local, or "-" if no frontend needs such a list. any reports whether some endpoint could be
// used at all.
type lists struct {
	cluster, local string
	any            bool
}

// listsOf reads the lists off the frontends. NoLocal tells of an empty local
// list that there is something elsewhere.
func listsOf(p model.ServicePlan) lists {
	out := lists{cluster: "-", local: "-"}
	for _, f := range p.Frontends {
		if f.Local {
			out.local = digits(f.Backends)
		} else {
			out.cluster = digits(f.Backends)
		}
		out.any = out.any || len(f.Backends) > 0 || f.NoLocal
	}
	return out
}

// categories are endpoints, the Service in front of them, and what comes of both.
type categories struct {
	name string
	node func(*plan.Options)
	opts []func(*model.Service)
	eps  []model.Endpoint
	want lists
}

// The policies of the rows.
var (
	outside  = externalIPs("198.51.100.1")
	internal = []func(*model.Service){build.InternalLocal()}
	mixedInt = []func(*model.Service){build.InternalLocal(), outside}
	mixedExt = []func(*model.Service){externalLocal(), outside}
	allLocal = []func(*model.Service){build.InternalLocal(), externalLocal(), outside}
)

func inZone(zone string) func(*plan.Options) {
	return func(o *plan.Options) { o.Zone = zone }
}

// TestCategorizeEndpoints has the cases of kube-proxy's test of that name
// (pkg/proxy/topology_test.go) with the default feature gates: hints and serving terminating
// endpoints always count. The union of the two lists, which kube-proxy returns as well, is
// left out.
func TestCategorizeEndpoints(t *testing.T) {
	four := func(hints ...string) []model.Endpoint {
		eps := []model.Endpoint{ready(a1, "far"), ready(a2, "far"), ready(a3, "far"), ready(a4, "far")}
		for i, h := range hints {
			if h != "" {
				eps[i].Hints = &model.Hints{Zones: []string{h}}
			}
		}
		return eps
	}
	here12 := func(eps []model.Endpoint) []model.Endpoint {
		eps[0].Node, eps[1].Node = "here", "here"
		return eps
	}
	not := func(eps []model.Endpoint, which ...int) []model.Endpoint {
		for _, i := range which {
			eps[i-1].Ready, eps[i-1].Serving = false, false
		}
		return eps
	}
	at := func(e model.Endpoint, node string) model.Endpoint { return nodes(zones(e, "z1"), node) }

	for _, group := range []struct {
		name string
		rows []categories
	}{
		{"zone hints", []categories{
			{"all hinted, two in the zone", nil, nil, four("z1", "z2", "z3", "z1"), lists{"14", "-", true}},
			{"unready ones are left out", nil, nil, not(four("z1", "z2", "z3", "z1"), 4), lists{"1", "-", true}},
			{"unready ones need no hint", nil, nil, not(four("z1", "z2", "", "z1"), 3), lists{"14", "-", true}},
			{"several hints an endpoint", inZone("z3"), nil, []model.Endpoint{zones(ready(a1, "far"), "z1", "z2", "z3"), zones(ready(a2, "far"), "z2", "z3"),
				zones(ready(a3, "far"), "z2", "z4"), zones(ready(a4, "far"), "z3")}, lists{"124", "-", true}},
		}},
		{"zone fallback", []categories{
			{"a node without a zone", inZone(""), nil, four("z1", "z1", "z1", "z1"), lists{"1234", "-", true}},
			{"an empty hint is no zone", inZone(""), nil, []model.Endpoint{zones(ready(a1, "far"), ""), zones(ready(a2, "far"), "z1")}, lists{"12", "-", true}},
			{"a zone without endpoints", inZone("z4"), nil, four("z1", "z2", "z3", "z1"), lists{"1234", "-", true}},
			{"one ready endpoint without a hint", nil, nil, four("z1", "z2", "", "z1"), lists{"1234", "-", true}},
			{"only unready ones in the zone", nil, nil, not(four("z1", "z2", "z3", "z1"), 1, 4), lists{"23", "-", true}},
		}},
		{"Local and hints", []categories{
			{"external Local ignores them, cluster does not", nil, mixedExt, here12(four("z1", "z2", "z3", "z1")), lists{"14", "12", true}},
			{"internal Local ignores them, cluster does not", nil, mixedInt, here12(four("z1", "z2", "z3", "z1")), lists{"14", "12", true}},
			{"both Local: the detour uses them", nil, allLocal, here12(four("z1", "z2", "z3", "z1")), lists{"14", "12", true}},
			{"neither list holds the other", nil, mixedExt, here12(four("z1", "z2", "z1", "z2")), lists{"13", "12", true}},
		}},
		{"PreferSameNode", []categories{
			{"the zone hints alone", nil, nil, []model.Endpoint{zones(ready(a1, "here"), "z1"), zones(ready(a2, "far"), "z1"), zones(ready(a3, "off"), "z2")}, lists{"12", "-", true}},
			{"the node before the zone", nil, nil, []model.Endpoint{at(ready(a1, "here"), "here"), at(ready(a2, "far"), "far"), at(ready(a3, "off"), "off")}, lists{"1", "-", true}},
			{"one without any hint", nil, nil, []model.Endpoint{at(ready(a1, "here"), "here"), at(ready(a2, "far"), "far"), ready(a3, "off")}, lists{"123", "-", true}},
			{"no endpoint for the node", nil, nil, []model.Endpoint{at(ready(a1, "far"), "far"), nodes(zones(ready(a2, "off"), "z2"), "off")}, lists{"1", "-", true}},
		}},
		{"internal Local only", []categories{
			{"no endpoints", nil, internal, nil, lists{"-", "", false}},
			{"all remote", nil, internal, []model.Endpoint{ready(a1, "far"), ready(a2, "far")}, lists{"-", "", true}},
			{"all local", nil, internal, []model.Endpoint{ready(a1, "here"), ready(a2, "here")}, lists{"-", "12", true}},
			{"some local", nil, internal, []model.Endpoint{ready(a1, "here"), ready(a2, "far")}, lists{"-", "1", true}},
		}},
		{"Cluster policy", []categories{
			{"none ready", nil, nil, []model.Endpoint{unready(a1, "here"), unready(a2, "far")}, lists{"", "-", false}},
			{"some ready", nil, nil, []model.Endpoint{unready(a1, "here"), ready(a2, "far")}, lists{"2", "-", true}},
			{"all leaving", nil, nil, []model.Endpoint{leaving(a1, "here"), leaving(a2, "far")}, lists{"12", "-", true}},
		}},
		{"mixed policies", []categories{
			{"internal Local, external Cluster", nil, mixedInt, []model.Endpoint{ready(a1, "here"), ready(a2, "far")}, lists{"12", "1", true}},
			{"internal Cluster, external Local", nil, mixedExt, []model.Endpoint{ready(a1, "here"), ready(a2, "far")}, lists{"12", "1", true}},
			{"both Local", nil, allLocal, []model.Endpoint{ready(a1, "here"), ready(a2, "far")}, lists{"12", "1", true}},
			{"both Local, all remote", nil, allLocal, []model.Endpoint{ready(a1, "far"), ready(a2, "far")}, lists{"12", "", true}},
			{"both Local, all remote and leaving", nil, allLocal, []model.Endpoint{leaving(a1, "far"), leaving(a2, "far")}, lists{"12", "", true}},
			{"leaving ones here, a ready one elsewhere", nil, mixedExt, []model.Endpoint{ready(a1, "far"), unready(a2, "here"), leaving(a3, "here"), leaving(a4, "far")}, lists{"1", "3", true}},
		}},
		{"misc", []categories{
			{"external Local without anything external", nil, []func(*model.Service){externalLocal()}, []model.Endpoint{ready(a1, "far"), ready(a2, "here")}, lists{"12", "-", true}},
			{"internal Local without anything external", nil, internal, []model.Endpoint{ready(a1, "far"), ready(a2, "here")}, lists{"-", "2", true}},
			{"no endpoints", nil, mixedExt, nil, lists{"", "", false}},
			{"neither ready, serving nor terminating", nil, allLocal, []model.Endpoint{unready(a1, "here"), unready(a2, "far"), dead(a3, "here")}, lists{"", "", false}},
		}},
	} {
		for _, tt := range group.rows {
			t.Run(group.name+"/"+tt.name, func(t *testing.T) {
				o, svc := here, web(tt.opts...)
				if tt.node != nil {
					tt.node(&o)
				}
				got := listsOf(plan.New(o).Compile(svc.ID, svc, []model.Slice{webSlice("a", tt.eps...)}))
				if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(lists{})); diff != "" {
					t.Errorf("lists (-want +got):\n%s", diff)
				}
			})
		}
	}
}
