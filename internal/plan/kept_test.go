package plan_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/plan"
	"github.com/kube-ipvs/kube-ipvs/internal/testkit/build"
)

// lastDigits prints addresses by their last number.
func lastDigits(all []netip.AddrPort) string {
	var out []byte
	for _, a := range all {
		addr := a.Addr().As4()
		out = append(out, '0'+addr[3])
	}
	return string(out)
}

// TestKept checks that an endpoint that serves, or was not told to terminate, keeps its
// connections when it is excluded from new ones (internal/DECISIONS.md, Draining).
func TestKept(t *testing.T) {
	for _, tt := range []struct {
		name           string
		eps            []model.Endpoint
		cluster, local string
	}{
		{"not ready for the moment", []model.Endpoint{ready(a1, "here"), unready(a2, "here")}, "2", "2"},
		{"serving while it terminates", []model.Endpoint{ready(a1, "here"), leaving(a2, "here")}, "2", "2"},
		{"terminating and no longer serving", []model.Endpoint{ready(a1, "here"), dead(a2, "here")}, "", ""},
		{"elsewhere, under Local", []model.Endpoint{ready(a1, "here"), ready(a2, "far"), dead(a3, "far")}, "", "2"},
		{"in another zone", []model.Endpoint{zones(ready(a1, "here"), "z1"), zones(ready(a2, "far"), "z2")}, "2", "2"},
		{"all leave and are used", []model.Endpoint{leaving(a1, "here"), leaving(a2, "here")}, "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, policy := range []struct {
				name, want string
				svc        *model.Service
			}{{"Cluster", tt.cluster, web()}, {"Local", tt.local, web(build.InternalLocal())}} {
				p := plan.New(here).Compile(policy.svc.ID, policy.svc, []model.Slice{webSlice("a", tt.eps...)})
				if got := lastDigits(p.Frontends[0].Kept); got != policy.want {
					t.Errorf("internalTrafficPolicy %s: kept %q, want %q", policy.name, got, policy.want)
				}
			}
		})
	}
}

func TestNothingOfUDPIsKept(t *testing.T) {
	svc, slice := web(), webSlice("a", ready(a1, "here"), unready(a2, "here"))
	svc.Ports[0].Protocol, slice.Ports[0].Protocol = model.UDP, model.UDP
	p := plan.New(here).Compile(svc.ID, svc, []model.Slice{slice})
	if f := p.Frontends[0]; len(f.Backends) != 1 || len(f.Kept) != 0 {
		t.Errorf("backends %v, kept %v", f.Backends, f.Kept)
	}
}

// A Service without the annotation has the time of the node.
func TestDrain(t *testing.T) {
	o := here
	o.Drain = 30 * time.Second
	svc := web()
	for _, tt := range []struct {
		annotation *time.Duration
		want       time.Duration
	}{{nil, 30 * time.Second}, {new(time.Duration(0)), 0}, {new(time.Minute), time.Minute}} {
		svc.Policy = &model.Policy{Drain: tt.annotation}
		if f := plan.New(o).Compile(svc.ID, svc, nil).Frontends[0]; f.Drain != tt.want {
			t.Errorf("%v: drain %s, want %s", tt.annotation, f.Drain, tt.want)
		}
	}
}
