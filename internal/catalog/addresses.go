package catalog

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// addressBook knows which Node has which address. A Node is told anew every few
// seconds, mostly for reasons that are none of ours; only an address that came or
// went costs anything.
type addressBook struct {
	// of has the Nodes that have an address.
	of map[nodeKey][]netip.Addr
	// all is of the other way round. It is handed out, so it is never changed but
	// made anew; stale tells that it has to be.
	all   map[netip.Addr]string
	stale bool
}

// nodeKey is a Node as one origin tells it.
type nodeKey struct {
	name   string
	origin model.Origin
}

func newAddressBook() addressBook { return addressBook{of: map[nodeKey][]netip.Addr{}} }

func (b *addressBook) set(k nodeKey, addrs []netip.Addr) {
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

// take returns who has which address, and whether that is news.
func (b *addressBook) take() (all map[netip.Addr]string, changed bool) {
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

// invert lists an address that two Nodes claim under the first name, so that the
// order in which they were told does not show.
func (b *addressBook) invert() map[netip.Addr]string {
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
