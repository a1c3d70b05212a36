package catalog

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// nodeAddresses has the addresses of each Node. A Node is updated every few seconds, mostly for
// reasons that do not concern us; only an address that came or went has a cost.
type nodeAddresses struct {
	// of has the addresses by Node, without Nodes that have none.
	of map[nodeKey][]netip.Addr
	// all is of inverted. It is handed out, and therefore replaced and never changed; stale is set
	// when it has to be replaced.
	all   map[netip.Addr]string
	stale bool
}

// nodeKey is a Node of one origin.
type nodeKey struct {
	name   string
	origin model.Origin
}

func newNodeAddresses() nodeAddresses { return nodeAddresses{of: map[nodeKey][]netip.Addr{}} }

func (b *nodeAddresses) set(k nodeKey, addrs []netip.Addr) {
	if slices.Equal(b.of[k], addrs) {
		return
	}
	b.stale = true
	if len(addrs) == 0 {
		delete(b.of, k)
	} else {
		b.of[k] = addrs
	}
}

// take returns the Node of each address, and whether that changed.
func (b *nodeAddresses) take() (all map[netip.Addr]string, changed bool) {
	if !b.stale {
		return b.all, false
	}
	b.stale = false
	now := b.invert()
	if changed = !maps.Equal(b.all, now); changed {
		b.all = now
	}
	return b.all, changed
}

// invert returns the Node of each address. An address that two Nodes claim belongs to the first
// by name, so that the result does not depend on the order of arrival.
func (b *nodeAddresses) invert() map[netip.Addr]string {
	out := make(map[netip.Addr]string, 2*len(b.of))
	for k, addrs := range b.of {
		for _, a := range addrs {
			if other, taken := out[a]; !taken || k.name < other {
				out[a] = k.name
			}
		}
	}
	return out
}
