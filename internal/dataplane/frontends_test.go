package dataplane_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

var vip = model.FrontendKey{Addr: netip.MustParseAddr("10.96.0.1"), Port: 80, Protocol: model.TCP}

// plan is a Service of the given age in seconds that wants vip, and sends to one
// backend whose last byte is backend.
func plan(name string, born int64, backend byte) model.ServicePlan {
	p := model.ServicePlan{ID: model.ServiceID{Origin: model.FromFile, Namespace: "ns", Name: name}}
	if born > 0 {
		p.Created = time.Unix(born, 0)
	}
	addr := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 244, 0, backend}), 8080)
	p.Frontends = []model.Frontend{{Key: vip, Service: p.ID, Backends: []model.Backend{{Addr: addr, Weight: 1}}}}
	return p
}

func gone(name string) model.ServicePlan {
	return model.ServicePlan{ID: model.ServiceID{Origin: model.FromFile, Namespace: "ns", Name: name}}
}

// heldBy names the Service whose frontend is in force.
func heldBy(f *dataplane.Frontends) string {
	fe, _ := f.Get(vip)
	return fe.Service.Name
}

func TestOlderServiceKeepsTheAddress(t *testing.T) {
	for _, tt := range []struct {
		name  string
		plans []model.ServicePlan
		want  string
	}{
		{"the older came first", []model.ServicePlan{plan("old", 1, 1), plan("young", 2, 2)}, "old"},
		{"the older came last", []model.ServicePlan{plan("young", 2, 2), plan("old", 1, 1)}, "old"},
		{"no date is youngest", []model.ServicePlan{plan("a-undated", 0, 1), plan("z-dated", 9, 2)}, "z-dated"},
		{"same age: the first by name", []model.ServicePlan{plan("b", 1, 1), plan("a", 1, 2)}, "a"},
		{"the older went", []model.ServicePlan{plan("old", 1, 1), plan("young", 2, 2), gone("old")}, "young"},
		{"the older was created again", []model.ServicePlan{plan("old", 1, 1), plan("young", 2, 2), plan("old", 3, 1)}, "young"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := dataplane.NewFrontends()
			for _, p := range tt.plans {
				f.Set(p)
			}
			if got := heldBy(f); got != tt.want {
				t.Errorf("held by %q, want %q", got, tt.want)
			}
		})
	}
}

// as has a Service want vip by a field of another kind.
func as(kind model.Kind, p model.ServicePlan) model.ServicePlan {
	p.Frontends[0].Kind = kind
	return p
}

// TestAllocatedAddressIsNotTakenByAnOlderClaim has an older Service name in its spec what belongs to a younger one.
func TestAllocatedAddressIsNotTakenByAnOlderClaim(t *testing.T) {
	kinds := []model.Kind{model.KindClusterIP, model.KindLoadBalancer, model.KindNodePort, model.KindExternalIP}
	for i, strong := range kinds {
		for _, weak := range kinds[i+1:] {
			f := dataplane.NewFrontends()
			f.Set(as(strong, plan("owner", 2, 2)))
			_, conflicts := f.Set(as(weak, plan("claimant", 1, 1)))
			if got := heldBy(f); got != "owner" {
				t.Errorf("%s against an older %s: held by %s", strong, weak, got)
			}
			want := "10.96.0.1:80/tcp belongs to ns/owner, whose " + strong.Noun() + " it is; ns/claimant does not get it"
			if len(conflicts) != 1 || conflicts[0].String() != want || f.Conflicts()[0] != conflicts[0] || f.Lost(conflicts[0].Loser)[0] != conflicts[0] {
				t.Errorf("conflicts %v and %v, want %q", conflicts, f.Conflicts(), want)
			}
			if f.Set(gone("owner")); heldBy(f) != "claimant" {
				t.Errorf("%s went, and an %s did not get its place", strong, weak)
			}
		}
	}
}

func TestConflictIsReportedOnceAndEnds(t *testing.T) {
	f := dataplane.NewFrontends()
	var said []string
	for _, p := range []model.ServicePlan{
		plan("young", 2, 2), plan("old", 1, 1), plan("old", 1, 7), plan("young", 2, 8), gone("old"),
	} {
		_, conflicts := f.Set(p)
		for _, c := range conflicts {
			said = append(said, c.String())
		}
	}
	want := []string{
		"10.96.0.1:80/tcp belongs to ns/old, which comes first by age, then by name; ns/young does not get it",
		"10.96.0.1:80/tcp: ns/young is in no conflict any more",
	}
	if diff := cmp.Diff(want, said); diff != "" {
		t.Errorf("conflicts (-want +got):\n%s", diff)
	}
	if n := len(f.Conflicts()); n != 0 {
		t.Errorf("%d conflicts stand after the end", n)
	}
}

// TestLoserIsToldOnce: a Service that does not get its address is not reported again when a third
// one takes it over. With a thousand losers that would be a thousand lines for each change.
func TestLoserIsToldOnce(t *testing.T) {
	f := dataplane.NewFrontends()
	for i, name := range []string{"old", "middle", "young"} {
		f.Set(plan(name, int64(i+1), byte(i+1)))
	}
	_, conflicts := f.Set(gone("old"))
	var said []string
	for _, c := range conflicts {
		said = append(said, c.String())
	}
	if diff := cmp.Diff([]string{"10.96.0.1:80/tcp: ns/middle is in no conflict any more"}, said); diff != "" {
		t.Errorf("conflicts (-want +got):\n%s", diff)
	}
}

func TestLoserChangesNothing(t *testing.T) {
	f := dataplane.NewFrontends()
	f.Set(plan("old", 1, 1))
	f.Set(plan("young", 2, 2))
	if changes, _ := f.Set(plan("young", 2, 3)); len(changes) != 0 {
		t.Errorf("the loser's new backend reached the mode: %+v", changes)
	}
	changes, _ := f.Set(gone("old"))
	if len(changes) != 1 || changes[0].New.Service.Name != "young" || changes[0].Old.Service.Name != "old" {
		t.Errorf("changes %+v, want one from old to young", changes)
	}
}

func TestSameAgainIsNoChange(t *testing.T) {
	f := dataplane.NewFrontends()
	f.Set(plan("a", 1, 1))
	if changes, _ := f.Set(plan("a", 1, 1)); len(changes) != 0 {
		t.Errorf("changes %+v", changes)
	}
	changes, _ := f.Set(gone("a"))
	if _, left := f.Get(vip); len(changes) != 1 || changes[0].New != nil || left {
		t.Errorf("changes %+v, still in force: %t", changes, left)
	}
}

// TestOldPlanIsNotKept checks that a frontend that is planned again as it was comes from the newer plan, so that the list of
// the older one can be freed.
func TestOldPlanIsNotKept(t *testing.T) {
	f := dataplane.NewFrontends()
	f.Set(plan("a", 1, 1))
	again := plan("a", 1, 1)
	f.Set(again)
	changes, _ := f.Set(plan("a", 1, 2))
	if len(changes) != 1 || changes[0].Old != &again.Frontends[0] {
		t.Errorf("changes %+v, want one from the frontend of the second plan", changes)
	}
}
