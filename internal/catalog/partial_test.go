package catalog_test

import (
	"slices"
	"testing"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/catalog"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/source"
)

// While the sources are asked only who has an endpoint can be taken, and the rest waits
// for Take.
func TestTakeReady(t *testing.T) {
	c := catalog.New(zap.NewNop(), "here", model.FromKube)
	some := func(limit int) (names []string, more bool) {
		b, more := c.TakeReady(limit, func(s *model.Service) bool { return s.ID.Name == "kubernetes" })
		for _, in := range b.Services {
			names = append(names, in.ID.Name)
		}
		return names, more
	}
	for _, name := range []string{"a", "b", "c", "empty", "kubernetes", "none"} {
		id := model.ServiceID{Origin: model.FromKube, Namespace: "ns", Name: name}
		c.SetService(model.Service{ID: id})
		slice := model.Slice{ID: model.SliceID{Origin: model.FromKube, Namespace: "ns", Name: name}, Service: id}
		switch name {
		case "none":
			continue
		case "empty":
		default:
			slice.Endpoints = []model.Endpoint{{}}
		}
		c.SetSlice(slice)
	}
	if names, more := some(10); c.Listing() || len(names) > 0 || more {
		t.Errorf("took %v, %t before Nodes were known", names, more)
	}
	c.SetNode(model.FromKube, model.Node{Name: "here", Zone: "z"})
	c.SetState(model.FromKube, source.Listing)
	if !c.Listing() || c.Synced() {
		t.Errorf("coming %t, synced %t", c.Listing(), c.Synced())
	}
	one, more := some(2)
	if len(one) != 2 || one[1] != "kubernetes" || !more {
		t.Errorf("took %v, more %t, want any and kubernetes, true", one, more)
	}
	two, more := some(2)
	if all := slices.Sorted(slices.Values(slices.Concat(one[:1], two))); !slices.Equal(all, []string{"a", "b", "c"}) || !slices.IsSorted(two) || more {
		t.Errorf("took %v after %v, more %t", two, one, more)
	}
	if got, more := some(2); len(got) > 0 || more {
		t.Errorf("took %v, more %t, want nothing", got, more)
	}
	// A Service that changed is taken again.
	c.SetSlice(model.Slice{ID: model.SliceID{Origin: model.FromKube, Namespace: "ns", Name: "a-2"}, Service: model.ServiceID{Origin: model.FromKube, Namespace: "ns", Name: "a"}, Endpoints: []model.Endpoint{{}}})
	if got, _ := some(2); !slices.Equal(got, []string{"a"}) {
		t.Errorf("took %v after a change", got)
	}
	c.SetState(model.FromKube, source.Complete)
	var rest []string
	for _, in := range c.Take().Services {
		rest = append(rest, in.ID.Name)
	}
	if want := []string{"empty", "none"}; !slices.Equal(rest, want) {
		t.Errorf("left for Take: %v, want %v", rest, want)
	}
}

func TestTakeReadyTellsTheNode(t *testing.T) {
	c := catalog.New(zap.NewNop(), "here", model.FromKube)
	c.SetNode(model.FromKube, model.Node{Name: "here", Zone: "z"})
	c.SetState(model.FromKube, source.Listing)
	none := func(*model.Service) bool { return false }
	if b, _ := c.TakeReady(1, none); !b.NodeChanged || b.Node.Zone != "z" {
		t.Errorf("batch %+v", b)
	}
	if b, _ := c.TakeReady(1, none); b.NodeChanged {
		t.Errorf("batch %+v tells it twice", b)
	}
}
