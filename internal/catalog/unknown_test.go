package catalog_test

import (
	"net/netip"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/kube-ipvs/kube-ipvs/internal/catalog"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/source"
)

// A name of this node that no Node has is named once everything is known, with those that have.
func TestUnknownNodeIsNamed(t *testing.T) {
	node := model.Node{Name: "n1", Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.1")}}
	for name, tt := range map[string]struct {
		self  string
		nodes []model.Node
		state source.State
		want  int
	}{
		"another one":  {"n9", []model.Node{node}, source.Complete, 1},
		"this one":     {"n1", []model.Node{node}, source.Complete, 0},
		"none":         {"n9", nil, source.Complete, 0},
		"not all read": {"n9", []model.Node{node}, source.Partial, 0},
	} {
		core, logs := observer.New(zap.WarnLevel)
		c := catalog.New(zap.New(core), tt.self, model.FromFile)
		for _, n := range tt.nodes {
			c.SetNode(model.FromFile, n)
		}
		c.SetState(model.FromFile, tt.state)
		lines := logs.FilterMessageSnippet("no Node object has the name of this node").All()
		if len(lines) != tt.want {
			t.Errorf("%s: %d lines, want %d", name, len(lines), tt.want)
		}
		for _, l := range lines {
			if m := l.ContextMap(); m["node"] != "n9" || m["count"] != int64(1) {
				t.Errorf("%s: fields %v", name, m)
			}
		}
	}
}
