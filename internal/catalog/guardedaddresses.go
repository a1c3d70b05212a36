package catalog

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// claimBook knows which addresses Services claim from outside the cluster (external IPs and
// load-balancer addresses). It also knows which of these another machine has or may have: an
// endpoint of a Service, or a deleted Node. The cost of an event depends on the number of addresses
// in it.
type claimBook struct {
	// claims counts the entries of Services that name an address.
	claims map[netip.Addr]int
	// endpoints4 and endpoints6 count the endpoints with an address: there are many, and a key of four bytes takes little.
	endpoints4 map[[4]byte]int32
	endpoints6 map[[16]byte]int32
	// had has the addresses of Nodes that are gone, or say no more that they have them, with the
	// name of the Node, as long as a Service claims them. last are the addresses that an earlier
	// process saved, used until all sources are in sync.
	had, last map[netip.Addr]string
	// taken are the claims that an endpoint has, guarded those that a Node had. kept are the claims that a Node has or had, and
	// last: what the next process is to know.
	taken         shared[struct{}]
	guarded, kept shared[string]
	// moot are the addresses about which they may be wrong.
	moot map[netip.Addr]struct{}
}

func newClaimBook() claimBook {
	return claimBook{
		claims: map[netip.Addr]int{}, endpoints4: map[[4]byte]int32{}, endpoints6: map[[16]byte]int32{},
		had: map[netip.Addr]string{}, last: map[netip.Addr]string{}, moot: map[netip.Addr]struct{}{},
	}
}

// service replaces one version of a Service by another; nil is none.
func (b *claimBook) service(old, now *model.Service) {
	if old != nil && now != nil && slices.Equal(old.ExternalIPs, now.ExternalIPs) && slices.Equal(old.Ingress, now.Ingress) {
		return
	}
	b.claim(old, -1)
	b.claim(now, 1)
}

func (b *claimBook) claim(s *model.Service, by int) {
	if s == nil {
		return
	}
	for _, a := range s.ExternalIPs {
		b.count(a, by)
	}
	for _, in := range s.Ingress {
		if !in.Proxy {
			b.count(in.Addr, by)
		}
	}
}

func (b *claimBook) count(a netip.Addr, by int) {
	b.moot[a] = struct{}{}
	if b.claims[a] += by; b.claims[a] <= 0 {
		delete(b.claims, a)
	}
}

// slice replaces one version of a slice by another; nil is none.
func (b *claimBook) slice(old, now *model.Slice) {
	if old != nil && now != nil && sameAddresses(old.Endpoints, now.Endpoints) {
		return
	}
	for _, one := range []struct {
		slice *model.Slice
		by    int32
	}{{old, -1}, {now, 1}} {
		if one.slice == nil {
			continue
		}
		for i := range one.slice.Endpoints {
			b.endpoint(one.slice.Endpoints[i].Addr, one.by)
		}
	}
}

func sameAddresses(a, b []model.Endpoint) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i].Addr != b[i].Addr {
			return false
		}
	}
	return true
}

func (b *claimBook) endpoint(a netip.Addr, by int32) {
	if _, claimed := b.claims[a]; claimed {
		b.moot[a] = struct{}{}
	}
	if a.Is4() {
		add(b.endpoints4, a.As4(), by)
	} else {
		add(b.endpoints6, a.As16(), by)
	}
}

func add[K comparable](counts map[K]int32, k K, by int32) {
	if counts[k] += by; counts[k] <= 0 {
		delete(counts, k)
	}
}

func (b *claimBook) hasEndpoint(a netip.Addr) bool {
	if a.Is4() {
		return b.endpoints4[a.As4()] > 0
	}
	return b.endpoints6[a.As16()] > 0
}

// moved follows the addresses of a Node. Those that it had stay guarded while a Service claims them: the machine may be alive,
// and its kubelet about to register it again.
func (b *claimBook) moved(node string, old, now []netip.Addr) {
	for _, a := range old {
		if b.claims[a] > 0 && !slices.Contains(now, a) {
			b.had[a], b.moot[a] = node, struct{}{}
		}
	}
	for _, a := range now {
		if b.claims[a] > 0 && !slices.Contains(old, a) {
			b.moot[a] = struct{}{}
		}
	}
}

// take returns which claims an endpoint has, and which of them a Node had that does not have them
// now, and whether that is news. The addresses that an earlier process saved count until the claims
// of all Services are known.
func (b *claimBook) take(nodes map[netip.Addr]string, complete bool) (taken map[netip.Addr]struct{}, guarded map[netip.Addr]string, changed bool) {
	if complete {
		for a, name := range b.last {
			b.moot[a] = struct{}{}
			if b.claims[a] > 0 {
				b.had[a] = name
			}
		}
		clear(b.last)
	}
	for a := range b.moot {
		name, remembered := b.last[a]
		owner, owned := nodes[a]
		claimed := b.claims[a] > 0
		switch {
		case owned || !claimed:
			delete(b.had, a)
		case remembered:
			b.had[a] = name
		}
		lost, had := b.had[a]
		changed = b.taken.put(a, struct{}{}, claimed && b.hasEndpoint(a)) || changed
		changed = b.guarded.put(a, lost, had) || changed
		switch {
		case owned && claimed:
			b.kept.put(a, owner, true)
		case had:
			b.kept.put(a, lost, true)
		default:
			b.kept.put(a, name, remembered)
		}
	}
	clear(b.moot)
	return b.taken.hand(), b.guarded.hand(), changed
}

// shared is a map that is handed out, and copied before it changes after that.
type shared[V comparable] struct {
	m   map[netip.Addr]V
	own bool
}

// put sets or removes a key, and reports whether that is news.
func (s *shared[V]) put(k netip.Addr, v V, there bool) bool {
	if old, was := s.m[k]; was == there && (!there || old == v) {
		return false
	}
	if !s.own {
		s.m, s.own = maps.Clone(s.m), true
	}
	switch {
	case !there:
		delete(s.m, k)
	case s.m == nil:
		s.m = map[netip.Addr]V{k: v}
	default:
		s.m[k] = v
	}
	return true
}

func (s *shared[V]) hand() map[netip.Addr]V {
	s.own = false
	return s.m
}

// Remember tells what an earlier process knew: addresses of Nodes, with the name of the Node. It is for the time before the
// sources run.
func (c *Catalog) Remember(addrs map[netip.Addr]string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.Copy(c.claimed.last, addrs)
	for a := range addrs {
		c.claimed.moot[a] = struct{}{}
	}
}
