package destinations

import (
	"cmp"
	"encoding/binary"
	"hash/fnv"
	"net/netip"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/scheduler"
)

// A destination that is added becomes the first of its server's list (list_add_rcu in
// __ip_vs_update_dest, net/netfilter/ipvs/ip_vs_ctl.c). There rr and wrr begin, and there lc, wlc,
// sed and nq find the first of several equal destinations. If every node added destinations in the
// order of their addresses, the last of them would get the first connection of every node. With
// many nodes and few connections it gets most of all. So each node has an order of its own, which
// is the same after a restart.
//
// That order is only of what is added at once. Existing destinations are not moved, and later ones
// go before them.

// destinationOrder compares destinations. It is for one goroutine.
type destinationOrder struct {
	node uint64
	// server is the virtual server of the latest comparison. seed determines the order of its
	// destinations; own means that the scheduler
	// leaves the order to this node.
	server vserver.ServerKey
	seed   uint64
	own    bool
}

func newOrder(node string) destinationOrder {
	h := fnv.New64a()
	h.Write([]byte(node)) // never fails
	return destinationOrder{node: h.Sum64()}
}

// forget is called when the scheduler of some server may have changed.
func (s *destinationOrder) forget() { s.server = vserver.ServerKey{} }

// compare keeps the destinations of a server together.
func (m *Manager) compare(a, b vserver.DestinationKey) int {
	if a.Server != b.Server {
		return a.Server.Compare(b.Server)
	}
	s := &m.order
	if s.server != a.Server {
		f, _ := m.frontends.Get(a.Server)
		s.server, s.seed, s.own = a.Server, s.of(a.Server), orderInsensitive(f.Scheduler)
	}
	if s.own {
		if c := cmp.Compare(mixPlace(s.seed, a.Addr, a.Port), mixPlace(s.seed, b.Addr, b.Port)); c != 0 {
			return c
		}
	}
	if c := a.Addr.Compare(b.Addr); c != 0 {
		return c
	}
	return cmp.Compare(a.Port, b.Port)
}

// of is the seed of one server.
func (s *destinationOrder) of(k vserver.ServerKey) uint64 {
	return mix(mixPlace(s.node, k.Addr, k.Port), uint64(k.Protocol))
}

// orderInsensitive reports whether the place at which a scheduler begins makes no difference to
// clients. Schedulers that hash build their tables in the order of the list (ip_vs_sh_reassign,
// ip_vs_mh_populate), and a client must get the same destination on every node. fo and ovf send all
// connections to one of the destinations with equal weight, which should be the same in the whole
// cluster.
func orderInsensitive(spec scheduler.Spec) bool {
	switch spec.Name() {
	case "sh", "dh", "mh", "fo", "ovf":
		return false
	}
	return true
}

// mixPlace mixes an address and a port into a hash. An address of IPv4 leaves room for the
// port in its second word.
func mixPlace(h uint64, a netip.Addr, port uint16) uint64 {
	b := a.As16()
	upper, lower := binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])
	return mix(h^upper*0x9e3779b97f4a7c15, lower^uint64(port)<<48)
}

// mix is a step of a hash of words, whose every bit follows from all bits of both (the
// finalizer of MurmurHash3).
func mix(h, word uint64) uint64 {
	h ^= word
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}
