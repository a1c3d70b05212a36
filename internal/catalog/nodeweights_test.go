package catalog_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// The weights of Nodes are handed out when they change, and at no other time.
func TestWeightsOfNodes(t *testing.T) {
	c := newCatalog(t, model.FromKube, model.FromFile)
	c.Take()
	want := func(step string, changed bool, weights map[string]model.NodeWeight) {
		t.Helper()
		b := c.Take()
		if b.NodeChanged != changed {
			t.Errorf("%s: changed %t, want %t", step, b.NodeChanged, changed)
		}
		if diff := cmp.Diff(weights, b.Weights); diff != "" {
			t.Errorf("%s: weights (-want +got):\n%s", step, diff)
		}
	}
	c.SetNode(model.FromKube, model.Node{Name: "m1"})
	want("one that says nothing", false, nil)
	c.SetNode(model.FromKube, model.Node{Name: "m1", Weight: new(uint16(0))})
	want("0 is a weight", true, map[string]model.NodeWeight{"m1": {}})
	c.SetNode(model.FromKube, model.Node{Name: "m1", Weight: new(uint16(0)), Zone: "z"})
	want("the same again", false, map[string]model.NodeWeight{"m1": {}})
	c.SetNode(model.FromFile, model.Node{Name: "m1", Weight: new(uint16(5))})
	want("the API goes before a file", false, map[string]model.NodeWeight{"m1": {}})
	c.SetNode(model.FromKube, model.Node{Name: "m2", BadAnnotations: []string{"a", "b"}})
	want("one that does not parse", true, map[string]model.NodeWeight{"m1": {}, "m2": {Bad: "a; b"}})
	c.DeleteNode(model.FromKube, "m1")
	c.DeleteNode(model.FromKube, "m2")
	want("what the file says is left", true, map[string]model.NodeWeight{"m1": {Weight: 5}})
	c.SetNode(model.FromFile, model.Node{Name: "m1"})
	want("nothing", true, map[string]model.NodeWeight{})
}
