package chains

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/netfilter"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// detours are the frontends whose clients on this node are redirected to another frontend. Each is a
// rule, because iptables has no table of addresses to rewrite by. A chain is rendered once for all
// changes of a batch. Endpoints do not change it.
type detours struct {
	from map[model.FrontendKey]detour
	// targets counts how many go to each frontend.
	targets map[model.FrontendKey]int
	// stale are the chains that have to be rendered again. waiting are chains that lack a rule
	// because the server to which it leads is not in place yet.
	stale, waiting map[netfilter.ChainKey]struct{}
}

// detour is the target of one frontend's clients, and the Service that has both.
type detour struct {
	to      netip.AddrPort
	service model.ServiceID
}

// newDetours returns no detours, and has both chains of each family to render.
func newDetours(families []model.Family) detours {
	d := detours{
		from: map[model.FrontendKey]detour{}, targets: map[model.FrontendKey]int{},
		stale: map[netfilter.ChainKey]struct{}{}, waiting: map[netfilter.ChainKey]struct{}{},
	}
	for _, f := range families {
		for _, name := range []string{chainDetourTo, chainDetourSCTP} {
			d.stale[netfilter.Nat(f, name)] = struct{}{}
		}
	}
	return d
}

// onChange adds, changes or removes the detour of one frontend.
func (d *detours) onChange(c dataplane.Change) {
	old, had := d.from[c.Key]
	now, has := detour{}, c.New != nil && c.New.Detour.IsValid()
	if has {
		now = detour{c.New.Detour, c.New.Service}
	}
	if had && has && old == now {
		return
	}
	if had {
		delete(d.from, c.Key)
		if d.targets[target(c.Key, old)]--; d.targets[target(c.Key, old)] == 0 {
			delete(d.targets, target(c.Key, old))
		}
	}
	if has {
		d.from[c.Key] = now
		d.targets[target(c.Key, now)]++
	}
	if had || has || d.targets[c.Key] > 0 && holder(c.Old) != holder(c.New) {
		d.stale[detourChain(c.Key)] = struct{}{}
	}
}

func holder(f *model.Frontend) model.ServiceID {
	if f == nil {
		return model.ServiceID{}
	}
	return f.Service
}

// target is the frontend that a detour leads to.
func target(from model.FrontendKey, d detour) model.FrontendKey {
	return model.FrontendKey{Addr: d.to.Addr(), Port: d.to.Port(), Protocol: from.Protocol}
}

// detourChain is the chain with the rule of a frontend's detour. SCTP has one of
// its own: where the kernel lacks the match, the chain is refused as a whole.
func detourChain(k model.FrontendKey) netfilter.ChainKey {
	if k.Protocol == model.SCTP {
		return netfilter.Nat(model.FamilyOf(k.Addr), chainDetourSCTP)
	}
	return netfilter.Nat(model.FamilyOf(k.Addr), chainDetourTo)
}

func isDetourChain(k netfilter.ChainKey) bool {
	return k.Name == chainDetourTo || k.Name == chainDetourSCTP
}

// WantDetours renders the chains of detours that changed. A rule waits until there reports that the
// server to which it leads is in place.
func (m *Manager) WantDetours(there func(model.FrontendKey) bool) {
	lists := map[netfilter.ChainKey][]netfilter.Rule{}
	for chain := range m.detours.stale {
		lists[chain] = nil
	}
	for _, k := range m.detours.affected() {
		d, chain := m.detours.from[k], detourChain(k)
		switch to, ok := m.frontends.Get(target(k, d)); {
		case !ok || to.Service != d.service: // it would mix the backends of two Services
		case !there(target(k, d)): // until it is, clients stay with the endpoints here
			m.detours.waiting[chain] = struct{}{}
		default:
			lists[chain] = append(lists[chain], detourRule(k, d.to))
		}
	}
	for chain, list := range lists {
		m.Chains.SetDesired(chain, netfilter.NewChain(chain.Family, list...))
	}
	clear(m.detours.stale)
}

// RetryDetours renders the chains again that lack a rule, and reports whether there are any. It is
// called after a pass, so that no client is redirected to an address without a virtual server.
func (m *Manager) RetryDetours(there func(model.FrontendKey) bool) bool {
	if len(m.detours.waiting) == 0 {
		return false
	}
	maps.Copy(m.detours.stale, m.detours.waiting)
	clear(m.detours.waiting)
	m.WantDetours(there)
	return true
}

// HasDetourTo reports whether any detour leads to a frontend.
func (m *Manager) HasDetourTo(k model.FrontendKey) bool { return m.detours.targets[k] > 0 }

// DetoursTo returns the frontends whose detour leads to one of some frontends.
func (m *Manager) DetoursTo(some func(model.FrontendKey) bool) []model.FrontendKey {
	var from []model.FrontendKey
	for k, d := range m.detours.from {
		if some(target(k, d)) {
			from = append(from, k)
		}
	}
	return from
}

// affected lists the frontends with rules in stale chains, sorted.
func (d *detours) affected() []model.FrontendKey {
	if len(d.stale) == 0 {
		return nil
	}
	return slices.SortedFunc(func(yield func(model.FrontendKey) bool) {
		for k := range d.from {
			if _, stale := d.stale[detourChain(k)]; stale && !yield(k) {
				return
			}
		}
	}, model.FrontendKey.Compare)
}
