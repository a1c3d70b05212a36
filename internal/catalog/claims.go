package catalog

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// claimBook knows which addresses Services claim from outside the cluster (external IPs and
// load-balancer addresses), and which of those another machine has or may have: an endpoint
// of a Service, or a Node that is gone. What comes or goes costs what it names.
type claimBook struct {
	// claims counts the entries of Services that name an address.
	claims map[netip.Addr]int
	// endpoints4 and endpoints6 count the endpoints with an address: there are many, and a key of four bytes takes little.
	endpoints4 map[[4]byte]int32
	endpoints6 map[[16]byte]int32
	// had has the addresses of Nodes that are gone, or say no more that they have them, with the name of the Node, as long as
	// a Service claims them. last is what an earlier process knew, until all sources have spoken.
	had, last map[netip.Addr]string
	// taken are the claims that an endpoint has, guarded those that a Node had. Both are handed out, so they are never changed
	// but made again; stale tells that they have to be.
	taken   map[netip.Addr]struct{}
	guarded map[netip.Addr]string
	// kept are the claims that a Node has or had, and last: what the next process is to remember.
	kept  map[netip.Addr]string
	stale bool
}

func newClaimBook() claimBook {
	return claimBook{
		claims: map[netip.Addr]int{}, endpoints4: map[[4]byte]int32{}, endpoints6: map[[16]byte]int32{},
		had: map[netip.Addr]string{}, last: map[netip.Addr]string{}, kept: map[netip.Addr]string{},
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
	b.stale = true
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
		b.stale = true
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
			b.had[a], b.stale = node, true
		}
	}
	for _, a := range now {
		b.stale = b.stale || b.claims[a] > 0 && !slices.Contains(old, a)
	}
}

// take returns which claims an endpoint has, and which of them a Node had that does not have them now, and whether that is
// news. What an earlier process knew counts until it is known what Services claim.
func (b *claimBook) take(nodes map[netip.Addr]string, complete bool) (taken map[netip.Addr]struct{}, guarded map[netip.Addr]string, changed bool) {
	if !b.stale {
		return b.taken, b.guarded, false
	}
	b.stale = false
	for a, name := range b.last {
		if b.claims[a] > 0 {
			b.had[a] = name
		}
	}
	if complete {
		clear(b.last)
	}
	for a := range b.had {
		if _, has := nodes[a]; has || b.claims[a] == 0 {
			delete(b.had, a)
		}
	}
	now := map[netip.Addr]struct{}{}
	for a := range b.claims {
		if b.hasEndpoint(a) {
			now[a] = struct{}{}
		}
	}
	if changed = !maps.Equal(now, b.taken) || !maps.Equal(b.had, b.guarded); changed {
		b.taken, b.guarded = now, maps.Clone(b.had)
	}
	b.kept = maps.Clone(b.last) // none once all is told
	maps.Copy(b.kept, b.had)
	for a := range b.claims {
		if name, has := nodes[a]; has {
			b.kept[a] = name
		}
	}
	return b.taken, b.guarded, changed
}

// Remember tells what an earlier process knew: addresses of Nodes, with the name of the Node. It is for the time before the
// sources run.
func (c *Catalog) Remember(addrs map[netip.Addr]string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.Copy(c.claimed.last, addrs)
	c.claimed.stale = true
}
