package catalog

import "github.com/kube-ipvs/kube-ipvs/internal/model"

// SetNode keeps our own Node. Other nodes are passed over: nothing that is
// decided today looks at them.
func (c *Catalog) SetNode(origin model.Origin, n model.Node) {
	if n.Name != c.self {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	before, had := c.node()
	c.nodes[origin] = n
	c.nodeMoved(before, had)
}

// DeleteNode forgets our own Node as an origin told it.
func (c *Catalog) DeleteNode(origin model.Origin, name string) {
	if name != c.self {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	before, had := c.node()
	delete(c.nodes, origin)
	c.nodeMoved(before, had)
}

// node is the Node of the best origin that tells one.
func (c *Catalog) node() (best model.Node, have bool) {
	var from model.Origin
	for origin, n := range c.nodes {
		if !have || origin.Rank() < from.Rank() || origin.Rank() == from.Rank() && origin < from {
			best, from, have = n, origin, true
		}
	}
	return best, have
}

// nodeMoved compares with what was true before. Which endpoints a service uses
// follows from our zone, so a new zone makes every service dirty.
func (c *Catalog) nodeMoved(before model.Node, had bool) {
	now, have := c.node()
	if had == have && now.Equal(before) {
		return
	}
	c.nodeChanged = true
	if now.Zone != before.Zone {
		c.markAll()
	}
	c.poke()
}
