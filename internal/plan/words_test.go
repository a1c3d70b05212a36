package plan_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/plan"
)

// Words for the parts of a Service besides its cluster IPs.

func externalIPs(all ...string) func(*model.Service) {
	return func(s *model.Service) { s.ExternalIPs = append(s.ExternalIPs, addrs(all...)...) }
}

func ingress(all ...string) func(*model.Service) {
	return func(s *model.Service) {
		s.Type = "LoadBalancer"
		for _, a := range all {
			s.Ingress = append(s.Ingress, model.Ingress{Addr: addr(a)})
		}
	}
}

func proxied(a string) func(*model.Service) {
	return func(s *model.Service) {
		s.Type = "LoadBalancer"
		s.Ingress = append(s.Ingress, model.Ingress{Addr: addr(a), Proxy: true})
	}
}

// nodePorts gives the ports their node ports, in order.
func nodePorts(all ...uint16) func(*model.Service) {
	return func(s *model.Service) {
		for i, n := range all {
			s.Ports[i].NodePort = n
		}
	}
}

func externalLocal() func(*model.Service) {
	return func(s *model.Service) { s.ExternalLocal = true }
}

func ranges(all ...string) func(*model.Service) {
	return func(s *model.Service) { s.SourceRanges = nets(all...) }
}

// at is the node of the tests on a machine.
func at(h model.Host) plan.Options {
	o := here
	o.Host = h
	return o
}

// dualNode answers node ports on one address of each family.
var dualNode = at(model.Host{NodePorts: addrs("192.0.2.10", "2001:db8::10")})

// full prints a frontend with what tells the kinds apart:
//
//	LoadBalancer 1.2.3.4:80/tcp local detour 10.96.0.1:80 -> 10.0.0.1:8080
func full(f model.Frontend) string {
	words := []string{f.Kind.String(), f.Key.String()}
	say := func(yes bool, word string) {
		if yes {
			words = append(words, word)
		}
	}
	say(f.Bind == (f.Kind == model.KindNodePort), map[bool]string{true: "bound", false: "unbound"}[f.Bind])
	say(f.Local, "local")
	say(f.NoLocal, "silent")
	for _, r := range f.SourceRanges {
		say(true, "from "+r.String())
	}
	say(f.OwnNode, "and this node")
	say(f.Detour.IsValid(), "detour "+f.Detour.String())
	return strings.Join(words, " ") + " ->" + backendList(f.Backends)
}

// expectFull compares all frontends, addresses that stay unbound, and notes.
func expectFull(t *testing.T, p model.ServicePlan, want ...string) {
	t.Helper()
	var got []string
	for _, f := range p.Frontends {
		got = append(got, full(f))
	}
	for _, a := range p.Unbound {
		got = append(got, "unbound "+a.String())
	}
	for _, n := range p.Notes {
		got = append(got, "note: "+n.Text)
	}
	for _, r := range p.Remarks {
		got = append(got, "remark: "+r.Text)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("plan (-want +got):\n%s", diff)
	}
}
