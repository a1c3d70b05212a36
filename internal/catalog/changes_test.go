package catalog_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/catalog"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/source"
)

// Only what is news counts, and what was taken is not pending any more.
func TestChanges(t *testing.T) {
	c := newCatalog(t, model.FromKube)
	for range 2 {
		c.SetService(service("a"))
		c.SetSlice(slice("a-1", "a", "10.244.0.1"))
	}
	c.SetSlice(slice("stray", ""))
	want := catalog.Changes{Services: 1, Slices: 1, PendingServices: 1, PendingSlices: 1}
	if diff := cmp.Diff(want, c.Changes(), cmpopts.IgnoreFields(want, "Last")); diff != "" {
		t.Errorf("changes (-want +got):\n%s", diff)
	}
	if c.Changes().Last.IsZero() {
		t.Error("the time of the last change is not known")
	}
	c.Take()
	c.DeleteSlice(sliceID("a-1"))
	c.DeleteSlice(sliceID("a-1"))
	c.DeleteService(id("a"))
	want = catalog.Changes{Services: 2, Slices: 2, PendingServices: 1, PendingSlices: 1}
	if diff := cmp.Diff(want, c.Changes(), cmpopts.IgnoreFields(want, "Last")); diff != "" {
		t.Errorf("changes (-want +got):\n%s", diff)
	}
}

func TestTriggers(t *testing.T) {
	c := newCatalog(t, model.FromKube)
	told := func(name string, at time.Time, addrs ...string) {
		s := slice(name, "a", addrs...)
		s.Triggered = at
		c.SetSlice(s)
	}
	soon := time.Now().Add(time.Hour)
	told("old", time.Now().Add(-time.Hour), "10.244.0.1")
	told("silent", time.Time{}, "10.244.0.2")
	told("fresh", soon, "10.244.0.3")
	told("fresh", soon.Add(time.Second), "10.244.0.3") // the same endpoints: nothing is programmed
	if diff := cmp.Diff([]catalog.Trigger{{Family: model.IPv4, At: soon}}, c.Take().Triggers); diff != "" {
		t.Errorf("triggers (-want +got):\n%s", diff)
	}
	c.DeleteSlice(sliceID("fresh"))
	if got := c.Take().Triggers; len(got) > 0 {
		t.Errorf("a removal has triggers: %v", got)
	}
}

func TestEligible(t *testing.T) {
	for _, tt := range []struct {
		name    string
		origins []model.Origin
		node    *model.Node
		want    bool
	}{
		{"manifests need no Node", []model.Origin{model.FromFile}, nil, true},
		{"nor does a Node hurt", []model.Origin{model.FromFile}, &model.Node{Name: "n1"}, true},
		{"a cluster's Node was never seen", []model.Origin{model.FromKube}, nil, false},
		{"another Node is not ours", []model.Origin{model.FromKube}, &model.Node{Name: "n2"}, false},
		{"a Node", []model.Origin{model.FromFile, model.FromKube}, &model.Node{Name: "n1"}, true},
		{"one that leaves", []model.Origin{model.FromKube}, &model.Node{Name: "n1", Leaving: true}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := catalog.New(zap.NewNop(), "n1", tt.origins...)
			if tt.node != nil {
				c.SetNode(tt.origins[len(tt.origins)-1], *tt.node)
			}
			if got := c.Eligible(); got != tt.want {
				t.Errorf("eligible %t, want %t", got, tt.want)
			}
		})
	}
}

// A Node that is deleted takes no traffic, and one that comes back does.
func TestEligibleAfterDeletion(t *testing.T) {
	c := newCatalog(t, model.FromKube)
	c.SetNode(model.FromKube, model.Node{Name: "n1"})
	c.DeleteNode(model.FromKube, "n1")
	if c.Eligible() {
		t.Error("a deleted Node is eligible")
	}
	c.SetNode(model.FromKube, model.Node{Name: "n1"})
	if !c.Eligible() {
		t.Error("a Node that came back is not")
	}
}

func TestUnsynced(t *testing.T) {
	c := newCatalog(t, model.FromKube, model.FromFile)
	c.SetState(model.FromFile, source.Partial)
	want := map[model.Origin]source.State{model.FromKube: source.Starting, model.FromFile: source.Partial}
	if diff := cmp.Diff(want, c.Unsynced()); diff != "" {
		t.Errorf("unsynced (-want +got):\n%s", diff)
	}
	c.SetState(model.FromFile, source.Complete)
	c.SetState(model.FromKube, source.Complete)
	if got := c.Unsynced(); len(got) > 0 {
		t.Errorf("unsynced: %v", got)
	}
}
