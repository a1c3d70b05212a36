package catalog

import (
	"maps"
	"strings"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// nodeWeights has the weights that Nodes ask for their endpoints. Most Nodes ask for none, and
// have no cost.
type nodeWeights struct {
	of map[nodeKey]model.NodeWeight
	// all is of by name. It is handed out, and therefore replaced and never changed; stale is set
	// when it has to be replaced.
	all   map[string]model.NodeWeight
	stale bool
}

func newNodeWeights() nodeWeights { return nodeWeights{of: map[nodeKey]model.NodeWeight{}} }

// weightOf returns the weight that a Node asks for; nil for none.
func weightOf(n *model.Node) *model.NodeWeight {
	switch {
	case n.Weight != nil:
		return &model.NodeWeight{Weight: *n.Weight}
	case len(n.BadAnnotations) > 0:
		return &model.NodeWeight{Bad: strings.Join(n.BadAnnotations, "; ")}
	}
	return nil
}

// set keeps the weight that a Node asks for; nil is none.
func (b *nodeWeights) set(k nodeKey, said *model.NodeWeight) {
	before, had := b.of[k]
	switch {
	case said == nil && !had || said != nil && had && *said == before:
		return
	case said == nil:
		delete(b.of, k)
	default:
		b.of[k] = *said
	}
	b.stale = true
}

// take returns the weights by Node, and whether they changed.
func (b *nodeWeights) take() (all map[string]model.NodeWeight, changed bool) {
	if !b.stale {
		return b.all, false
	}
	b.stale = false
	now, from := make(map[string]model.NodeWeight, len(b.of)), map[string]model.Origin{}
	for k, w := range b.of {
		if other, taken := from[k.name]; !taken || k.origin.Rank() < other.Rank() {
			now[k.name], from[k.name] = w, k.origin
		}
	}
	if changed = !maps.Equal(b.all, now); changed {
		b.all = now
	}
	return b.all, changed
}
