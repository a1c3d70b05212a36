package plan_test

import (
	"testing"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/plan"
	"github.com/kube-ipvs/kube-ipvs/internal/testkit/build"
)

// Addresses of the rows below; the last number tells them apart.
const (
	a1, a2, a3, a4, a5 = "10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5"
)

// choiceRow is a list of endpoints and the resulting backends, once for each internal traffic
// policy: the numbers of the addresses, or "" for none.
type choiceRow struct {
	name           string
	eps            []model.Endpoint
	cluster, local string
}

// digits prints backends by the last number of their address.
func digits(all []model.Backend) string {
	var out []byte
	for _, b := range all {
		addr := b.Addr.Addr().As4()
		out = append(out, '0'+addr[3])
	}
	return string(out)
}

func runChoices(t *testing.T, o plan.Options, rows []choiceRow) {
	t.Helper()
	for _, tt := range rows {
		t.Run(tt.name, func(t *testing.T) {
			for _, policy := range []struct {
				name, want string
				svc        *model.Service
			}{
				{"Cluster", tt.cluster, web()},
				{"Local", tt.local, web(build.InternalLocal())},
			} {
				p := plan.New(o).Compile(policy.svc.ID, policy.svc, []model.Slice{webSlice("a", tt.eps...)})
				if got := digits(p.Frontends[0].Backends); got != policy.want {
					t.Errorf("internalTrafficPolicy %s: backends %q, want %q", policy.name, got, policy.want)
				}
			}
		})
	}
}

// TestConditions holds what Kubernetes' TestCategorizeEndpoints, the ready and
// terminating scenarios of its ipvs proxier and TestEndpointSliceE2E say about
// a cluster IP. Under Local there is no falling back to other nodes.
func TestConditions(t *testing.T) {
	runChoices(t, here, []choiceRow{
		{name: "no endpoints"},
		{"local, two remote and one unready", []model.Endpoint{ready(a1, "here"), ready(a2, "far"), ready(a3, "far"), unready(a4, "here")}, "123", "1"},
		{"all local", []model.Endpoint{ready(a1, "here"), ready(a2, "here")}, "12", "12"},
		{"all remote", []model.Endpoint{ready(a1, "far"), ready(a2, "far")}, "12", ""},
		{"on an unknown node", []model.Endpoint{ready(a1, ""), ready(a2, "here")}, "12", "2"},
		{"all unready", []model.Endpoint{unready(a1, "here"), unready(a2, "far")}, "", ""},
		{"local unready, remote ready", []model.Endpoint{unready(a1, "here"), ready(a2, "far")}, "2", ""},
		{"ready ones before leaving ones", []model.Endpoint{ready(a1, "here"), ready(a2, "here"), ready(a3, "far"), leaving(a4, "here"), dead(a5, "far")}, "123", "12"},
		{"only leaving ones", []model.Endpoint{leaving(a1, "here"), leaving(a2, "here"), leaving(a3, "far"), dead(a4, "here")}, "123", "12"},
		{"only leaving ones elsewhere", []model.Endpoint{leaving(a1, "far"), leaving(a2, "far")}, "12", ""},
		{"leaving here, ready elsewhere", []model.Endpoint{leaving(a1, "here"), leaving(a2, "here"), ready(a3, "far")}, "3", "12"},
		{"leaving here, unready elsewhere", []model.Endpoint{leaving(a1, "here"), unready(a2, "far")}, "1", "1"},
		{"terminating and no longer serving", []model.Endpoint{dead(a1, "here"), dead(a2, "far")}, "", ""},
		{"serving, but neither ready nor terminating", []model.Endpoint{{Addr: addr(a1), Node: "here", Serving: true}}, "", ""},
		{"ready although it terminates (publishNotReadyAddresses)", []model.Endpoint{{Addr: addr(a1), Node: "here", Ready: true, Terminating: true}}, "1", "1"},
	})
}

func TestZoneHints(t *testing.T) {
	runChoices(t, here, []choiceRow{
		{"same zone only", []model.Endpoint{zones(ready(a1, "here"), "z1"), zones(ready(a2, "far"), "z2"), zones(ready(a3, "far"), "z1")}, "13", "1"},
		{"several hints on one endpoint", []model.Endpoint{zones(ready(a1, "far"), "z2", "z1"), zones(ready(a2, "far"), "z3")}, "1", ""},
		{"hints of unready ones do not count", []model.Endpoint{zones(ready(a1, "far"), "z1"), unready(a2, "here"), zones(ready(a3, "here"), "z2")}, "1", "3"},
		{"one ready endpoint without", []model.Endpoint{zones(ready(a1, "here"), "z1"), ready(a2, "far"), zones(ready(a3, "far"), "z2")}, "123", "1"},
		{"a zone without endpoints", []model.Endpoint{zones(ready(a1, "far"), "z2"), zones(ready(a2, "here"), "z3")}, "12", "2"},
		{"only an unready one in the zone", []model.Endpoint{zones(unready(a1, "here"), "z1"), zones(ready(a2, "far"), "z2")}, "2", ""},
		{"leaving ones are taken from every zone", []model.Endpoint{zones(leaving(a1, "here"), "z1"), zones(leaving(a2, "far"), "z2")}, "12", "1"},
		{"leaving ones in the zone do not hold it", []model.Endpoint{zones(leaving(a1, "here"), "z1"), zones(ready(a2, "far"), "z2")}, "2", "1"},
		{"Local does not look at hints", []model.Endpoint{zones(ready(a1, "here"), "z2"), zones(ready(a2, "far"), "z1")}, "2", "1"},
	})
}

func TestNodeHints(t *testing.T) {
	both := func(e model.Endpoint, zone, node string) model.Endpoint { return nodes(zones(e, zone), node) }
	runChoices(t, here, []choiceRow{
		{"same node only", []model.Endpoint{both(ready(a1, "here"), "z1", "here"), both(ready(a2, "far"), "z1", "far")}, "1", "1"},
		{"no endpoint for this node: the zone", []model.Endpoint{both(ready(a1, "far"), "z1", "far"), both(ready(a2, "off"), "z2", "off")}, "1", ""},
		{"one without a node hint: the zone", []model.Endpoint{both(ready(a1, "here"), "z1", "here"), zones(ready(a2, "far"), "z1"), zones(ready(a3, "far"), "z2")}, "12", "1"},
		{"one without any hint: all", []model.Endpoint{both(ready(a1, "here"), "z1", "here"), ready(a2, "far")}, "12", "1"},
		{"node hints alone that name others: all", []model.Endpoint{nodes(ready(a1, "far"), "far"), nodes(ready(a2, "off"), "off")}, "12", ""},
		{"only an unready one on this node", []model.Endpoint{both(unready(a1, "here"), "z1", "here"), both(ready(a2, "far"), "z1", "far")}, "2", ""},
	})
}

func TestNodeWithoutNameOrZone(t *testing.T) {
	o := here
	o.Node, o.Zone = "", ""
	runChoices(t, o, []choiceRow{
		{"zone hints are not looked at", []model.Endpoint{zones(ready(a1, "far"), "z1"), zones(ready(a2, "far"), "z2")}, "12", ""},
		{"nor an empty one believed", []model.Endpoint{zones(ready(a1, "far"), ""), zones(ready(a2, "far"), "z2")}, "12", ""},
		{"nor an empty node", []model.Endpoint{nodes(ready(a1, ""), ""), nodes(ready(a2, "far"), "far")}, "12", ""},
	})
}

// Hairpin holds the endpoints of this node in any condition and under any
// policy, as KUBE-LOOP-BACK does upstream.
func TestHairpinIgnoresConditionsAndPolicy(t *testing.T) {
	slice := webSlice("a", dead(a4, "here"), leaving(a3, "here"), unready(a2, "here"), ready(a1, "here"), ready(a5, "far"))
	for _, svc := range []*model.Service{web(), web(build.InternalLocal())} {
		p := compile(svc, slice)
		if got, want := addrList(p.Frontends[0].Hairpin), " 10.0.0.1:8080 10.0.0.2:8080 10.0.0.3:8080 10.0.0.4:8080"; got != want {
			t.Errorf("hairpin%s, want%s", got, want)
		}
	}
}

// Each port decides alone: hints behind one do not affect the other.
func TestPortsAreDecidedApart(t *testing.T) {
	svc := web(build.Port("admin", 81))
	admin := build.Slice("web", "b", build.Target("admin", 9), build.Endpoints(ready(a3, "far"), ready(a4, "far")))
	http := webSlice("a", zones(ready(a1, "far"), "z1"), zones(ready(a2, "far"), "z2"))
	expect(t, compile(svc, http, admin),
		"10.96.0.1:80/tcp -> 10.0.0.1:8080",
		"10.96.0.1:81/tcp -> 10.0.0.3:9 10.0.0.4:9")
}
