package catalog

import (
	"maps"
	"net/netip"
	"slices"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/source"
)

// ownNode is our own Node as each origin has it.
type ownNode struct {
	nodes   map[model.Origin]model.Node
	gone    map[model.Origin]bool // our Node was deleted, and its last state is still in force
	changed bool
}

// SetNode keeps our own Node. Of every Node it keeps the addresses, because no Service may take one
// of them from its machine, and the weight that the Node gives its endpoints.
func (c *Catalog) SetNode(origin model.Origin, n model.Node) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.setAddresses(nodeKey{n.Name, origin}, n.Addresses)
	c.weights.set(nodeKey{n.Name, origin}, weightOf(&n))
	if n.Name == c.self {
		before, had := c.node()
		c.own.nodes[origin] = n
		delete(c.own.gone, origin)
		c.nodeMoved(before, had)
	}
	c.notifyForNodes()
}

// DeleteNode removes a Node of an origin. This machine's own Node from the API stays in use:
// the machine and its pods still run, and the kubelet registers the Node again. kube-proxy
// only logs such a deletion, too.
func (c *Catalog) DeleteNode(origin model.Origin, name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if name != c.self || origin != model.FromKube {
		c.setAddresses(nodeKey{name, origin}, nil)
		c.weights.set(nodeKey{name, origin}, nil)
	}
	if name == c.self {
		before, had := c.node()
		if _, known := c.own.nodes[origin]; known && origin == model.FromKube {
			c.own.gone[origin] = true
		} else {
			delete(c.own.nodes, origin)
		}
		c.nodeMoved(before, had)
	}
	c.notifyForNodes()
}

// setAddresses keeps the addresses of a Node.
func (c *Catalog) setAddresses(k nodeKey, addrs []netip.Addr) {
	c.claimed.moved(k.name, c.addresses.of[k], addrs)
	c.addresses.set(k, addrs)
}

func (c *Catalog) notifyForNodes() {
	if c.own.changed || c.addresses.stale || c.weights.stale || len(c.claimed.moot) > 0 {
		c.notify()
	}
}

// node is the Node of the best origin that tells one.
func (c *Catalog) node() (best model.Node, have bool) {
	var from model.Origin
	for origin, n := range c.own.nodes {
		if !have || origin.Rank() < from.Rank() || origin.Rank() == from.Rank() && origin < from {
			best, from, have = n, origin, true
		}
	}
	return best, have
}

// mostNodesNamed bounds the names of Nodes in one line of the log.
const mostNodesNamed = 5

// logUnknownNode reports that there are Nodes, and none of the name of this one: that is a wrong
// --hostname-override more often than a Node that is yet to register.
func (c *Catalog) logUnknownNode(state source.State) {
	if _, have := c.node(); have || state != source.Complete || len(c.addresses.of) == 0 {
		return
	}
	names := map[string]bool{}
	for k := range c.addresses.of {
		names[k.name] = true
	}
	list := slices.Sorted(maps.Keys(names))
	c.log.Warn("no Node object has the name of this node, so no endpoint counts as local: check --hostname-override",
		zap.String("node", c.self), zap.Strings("nodes", list[:min(len(list), mostNodesNamed)]), zap.Int("count", len(list)))
}

// Eligible reports whether load balancers may send traffic through this Node: it exists, is
// not being deleted and has no taint ToBeDeletedByClusterAutoscaler (KEP-3836). Without an
// API server it may be absent.
func (c *Catalog) Eligible() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, have := c.node()
	if _, awaited := c.states[model.FromKube]; awaited && (!have || c.own.gone[model.FromKube]) {
		return false
	}
	return !n.Leaving
}

// Unsynced names the awaited origins that have not delivered everything yet,
// with what they are at.
func (c *Catalog) Unsynced() map[model.Origin]source.State {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := map[model.Origin]source.State{}
	for o, s := range c.states {
		if s != source.Complete {
			out[o] = s
		}
	}
	return out
}

// nodeMoved compares with what was true before. It makes no service dirty: the caller knows which
// services a change of the node affects, and selects them by Matching.
func (c *Catalog) nodeMoved(before model.Node, had bool) {
	if now, have := c.node(); had != have || !now.Equal(before) {
		c.own.changed = true
	}
}
