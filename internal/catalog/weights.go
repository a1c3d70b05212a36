package catalog

import (
	"maps"
	"strings"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// weightBook knows which Node says what of the weight of its endpoints. Most say nothing,
// and cost nothing.
type weightBook struct {
	of map[nodeKey]model.NodeWeight
	// all is of by name. It is handed out, so it is never changed but made anew; stale
	// tells that it has to be.
	all   map[string]model.NodeWeight
	stale bool
}

func newWeightBook() weightBook { return weightBook{of: map[nodeKey]model.NodeWeight{}} }

// weightOf is what a Node says; nil for nothing.
func weightOf(n *model.Node) *model.NodeWeight {
	switch {
	case n.Weight != nil:
		return &model.NodeWeight{Weight: *n.Weight}
	case len(n.BadAnnotations) > 0:
		return &model.NodeWeight{Bad: strings.Join(n.BadAnnotations, "; ")}
	}
	return nil
}

// set keeps what a Node says; nil is nothing.
func (b *weightBook) set(k nodeKey, said *model.NodeWeight) {
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

// take returns who says what, and whether that is news.
func (b *weightBook) take() (all map[string]model.NodeWeight, changed bool) {
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
