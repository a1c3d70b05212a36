package ipvs

import (
	"maps"
	"slices"
	"strings"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// detours are the frontends that clients of this node leave for another one. Each
// is a rule, for iptables has no table of addresses to rewrite by. The chain is
// rendered once for all changes of a batch; endpoints do not change it.
type detours struct {
	from map[model.FrontendKey]model.Frontend
	// targets counts how many go to each frontend.
	targets map[model.FrontendKey]int
	// stale are the families whose chain has to be rendered anew.
	stale map[model.Family]struct{}
}

func newDetours() detours {
	return detours{map[model.FrontendKey]model.Frontend{}, map[model.FrontendKey]int{}, map[model.Family]struct{}{}}
}

// change follows one frontend.
func (d *detours) change(c dataplane.Change) {
	old, had := d.from[c.Key]
	has := c.New != nil && c.New.Detour.IsValid()
	if had && has && old.Detour == c.New.Detour && old.Service == c.New.Service {
		return
	}
	if had {
		delete(d.from, c.Key)
		if d.targets[target(old)]--; d.targets[target(old)] == 0 {
			delete(d.targets, target(old))
		}
	}
	if has {
		d.from[c.Key] = *c.New
		d.targets[target(*c.New)]++
	}
	if had || has || d.targets[c.Key] > 0 && holder(c.Old) != holder(c.New) {
		d.stale[model.FamilyOf(c.Key.Addr)] = struct{}{}
	}
}

func holder(f *model.Frontend) model.ServiceID {
	if f == nil {
		return model.ServiceID{}
	}
	return f.Service
}

// target is the frontend that a detour leads to.
func target(f model.Frontend) model.FrontendKey {
	return model.FrontendKey{Addr: f.Detour.Addr(), Port: f.Detour.Port(), Protocol: f.Key.Protocol}
}

// wantDetours renders the chains that are stale. A detour to what another Service
// holds would mix their backends, so there is none.
func (m *Mode) wantDetours() {
	for f := range m.detours.stale {
		var lines []string
		for _, k := range slices.SortedFunc(maps.Keys(m.detours.from), model.FrontendKey.Compare) {
			from := m.detours.from[k]
			if to, ok := m.frontends.Get(target(from)); model.FamilyOf(k.Addr) == f && ok && to.Service == from.Service {
				lines = append(lines, detourRule(from))
			}
		}
		m.chains.SetDesired(detourChain(f), rules.Chain{Rules: strings.Join(lines, "\n")})
	}
	clear(m.detours.stale)
}

// detoursInPlace tells whether the rules of a family's detours are written.
func (m *Mode) detoursInPlace(f model.Family) bool {
	want, _ := m.chains.Desired(detourChain(f))
	have, there := m.chains.Believed(detourChain(f))
	return there && have == want
}
