package healthcheck

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// slot is what one Service at a time can have: a port in a family.
type slot struct {
	family model.Family
	port   uint16
}

func (s slot) compare(o slot) int {
	return cmp.Or(cmp.Compare(s.port, o.port), cmp.Compare(s.family, o.family))
}

// network is the name by which package net knows the family. It is never "tcp": a
// socket of both would take the port of the other.
func (s slot) network() string {
	if s.family == model.IPv4 {
		return "tcp4"
	}
	return "tcp6"
}

// everywhere is the unspecified address of the family.
func (s slot) everywhere() netip.Addr {
	if s.family == model.IPv4 {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}

// claim is a Service that wants a slot, and the count that it wants answered. With other
// it has only the other family, and yields the slot to a Service that has this one.
type claim struct {
	service model.ServiceID
	ready   int
	other   bool
}

// desiredPort is the desired state of a slot: the Services that want it, sorted, and the addresses.
type desiredPort struct {
	slot   slot
	claims []claim
	addrs  []netip.Addr
}

// desiredPorts keeps what was asked for and which slots it changes, so that a change
// costs what it touches.
type desiredPorts struct {
	services   map[model.ServiceID]model.HealthCheck
	claims     map[slot]map[model.ServiceID]model.LocalEndpoints
	addrs      []netip.Addr
	everywhere bool
	dirty      map[slot]struct{}
}

func newDesiredPorts() desiredPorts {
	return desiredPorts{
		services: map[model.ServiceID]model.HealthCheck{},
		claims:   map[slot]map[model.ServiceID]model.LocalEndpoints{},
		dirty:    map[slot]struct{}{},
	}
}

// counts are the slots that h asks for, with their answers.
func counts(h model.HealthCheck) map[slot]model.LocalEndpoints {
	out := map[slot]model.LocalEndpoints{}
	if h.Port == 0 {
		return out
	}
	if h.IPv4.Served {
		out[slot{model.IPv4, h.Port}] = h.IPv4
	}
	if h.IPv6.Served {
		out[slot{model.IPv6, h.Port}] = h.IPv6
	}
	return out
}

func (w *desiredPorts) set(id model.ServiceID, h model.HealthCheck) {
	before, after := counts(w.services[id]), counts(h)
	for at := range before {
		if _, stays := after[at]; !stays {
			w.withdraw(at, id)
		}
	}
	for at, counted := range after {
		if was, there := before[at]; !there || was != counted {
			w.claim(at, id, counted)
		}
	}
	if len(after) == 0 {
		delete(w.services, id)
		return
	}
	w.services[id] = h
}

func (w *desiredPorts) claim(at slot, id model.ServiceID, counted model.LocalEndpoints) {
	if w.claims[at] == nil {
		w.claims[at] = map[model.ServiceID]model.LocalEndpoints{}
	}
	w.claims[at][id] = counted
	w.dirty[at] = struct{}{}
}

func (w *desiredPorts) withdraw(at slot, id model.ServiceID) {
	delete(w.claims[at], id)
	if len(w.claims[at]) == 0 {
		delete(w.claims, at)
	}
	w.dirty[at] = struct{}{}
}

func (w *desiredPorts) listen(addrs []netip.Addr, everywhere bool) {
	addrs = slices.SortedFunc(slices.Values(addrs), netip.Addr.Compare)
	addrs = slices.Compact(addrs)
	if everywhere == w.everywhere && slices.Equal(addrs, w.addrs) {
		return
	}
	w.addrs, w.everywhere = addrs, everywhere
	w.all()
}

// all marks every slot as changed.
func (w *desiredPorts) all() {
	for at := range w.claims {
		w.dirty[at] = struct{}{}
	}
}

// take empties the list of changed slots and returns the desired port of each.
func (w *desiredPorts) take() []desiredPort {
	var out []desiredPort
	for _, at := range slices.SortedFunc(maps.Keys(w.dirty), slot.compare) {
		out = append(out, desiredPort{slot: at, claims: w.claimants(at), addrs: w.addresses(at)})
	}
	clear(w.dirty)
	return out
}

func (w *desiredPorts) claimants(at slot) []claim {
	var out []claim
	for id, counted := range w.claims[at] {
		out = append(out, claim{id, counted.Ready, counted.Other})
	}
	if slices.ContainsFunc(out, func(c claim) bool { return !c.other }) {
		out = slices.DeleteFunc(out, func(c claim) bool { return c.other })
	}
	slices.SortFunc(out, func(a, b claim) int { return a.service.Compare(b.service) })
	return out
}

// addresses are those at which a slot is to listen.
func (w *desiredPorts) addresses(at slot) []netip.Addr {
	if w.everywhere {
		return []netip.Addr{at.everywhere()}
	}
	var out []netip.Addr
	for _, a := range w.addrs {
		if model.FamilyOf(a) == at.family {
			out = append(out, a)
		}
	}
	return out
}
