package iptables

import (
	"iter"
	"net/netip"
	"slices"
	"strings"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/conntrack"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// flows are the UDP frontends whose flows have to be looked at: connection tracking sends
// a flow where it went first for as long as it goes on (decisions 12). Connections of TCP
// and SCTP are left alone, for what they have begun is theirs to finish. Beside each are
// the ends of the names of chains that have to be in place before.
type flows map[model.FrontendKey][]string

// noteFlows remembers a frontend of which somebody left, or that has its first endpoints:
// before that a flow was sent on untranslated, and stays so.
func (m *Mode) noteFlows(c dataplane.Change) {
	if c.Key.Protocol != model.UDP || c.New != nil && c.Old != nil && holdsAll(c.New.Backends, c.Old.Backends) && len(c.Old.Backends) > 0 {
		return
	}
	for _, f := range []*model.Frontend{c.Old, c.New} {
		if f != nil {
			m.noteFlow(*f)
		}
	}
}

func (m *Mode) noteFlow(f model.Frontend) {
	hash := hashed(m.config.nameOf(f), f.Key.Protocol.String())
	if !slices.Contains(m.flows[f.Key], hash) {
		m.flows[f.Key] = append(m.flows[f.Key], hash)
	}
}

// noteDetours remembers the frontends of a Service whose clients on this node are answered
// by the endpoints of one that was noted.
func (m *Mode) noteDetours(id model.ServiceID) {
	if len(m.flows) == 0 {
		return
	}
	for k := range m.inForce[id] {
		f, _ := m.frontends.Get(k)
		if _, noted := m.flows[detourKey(f)]; noted {
			m.noteFlow(f)
		}
	}
}

// detourKey is the frontend that clients of this node are taken to.
func detourKey(f model.Frontend) model.FrontendKey {
	return model.FrontendKey{Addr: f.Detour.Addr(), Port: f.Detour.Port(), Protocol: f.Key.Protocol}
}

// holdsAll tells whether all of some backends are among others.
func holdsAll(all, some []model.Backend) bool {
	return !slices.ContainsFunc(some, func(b model.Backend) bool { return !slices.Contains(all, b) })
}

// noteFound notes every frontend: nobody knows what changed before the kernel was read.
func (m *Mode) noteFound() {
	for _, keys := range m.inForce {
		for k := range keys {
			if f, ok := m.frontends.Get(k); ok && k.Protocol == model.UDP {
				m.noteFlow(f)
			}
		}
	}
}

// orderFlows hands over what was noted, once the kernel has all of it: what could not be
// written goes on answering.
func (m *Mode) orderFlows() {
	if len(m.flows) == 0 && !m.flushed {
		return
	}
	unsettled := m.unsettled()
	out := m.untranslated(unsettled)
	for k, hashes := range m.flows {
		if !slices.ContainsFunc(hashes, func(h string) bool { return has(unsettled, h) }) {
			out = append(out, m.order(k))
			delete(m.flows, k)
		}
	}
	if m.deps.Flows != nil && len(out) > 0 {
		m.deps.Flows.Order(out...)
	}
}

// untranslated looks, once everything is in place again, for connections that began while
// rules were lost: connection tracking goes on leaving them as they are, those that a
// client begins anew from the same port included.
func (m *Mode) untranslated(unsettled map[string]struct{}) (out []conntrack.Order) {
	if !m.flushed || len(unsettled) > 0 {
		return nil
	}
	m.flushed = false
	for _, keys := range m.inForce {
		for k := range keys {
			if k.Protocol != model.UDP { // those are looked at in any case
				out = append(out, conntrack.Order{Key: flowKey(k), Untranslated: true})
			}
		}
	}
	return out
}

func flowKey(k model.FrontendKey) conntrack.Key {
	return conntrack.Key{Addr: k.Addr, Port: k.Port, Protocol: uint8(k.Protocol)}
}

// unsettled are the ends of the names of chains of Services that are not as they should
// be, or that something leads to wrongly.
func (m *Mode) unsettled() map[string]struct{} {
	out := map[string]struct{}{}
	add := func(k rules.ChainKey) {
		if ofService(k) {
			out[k.Name[strings.LastIndexByte(k.Name, '-')+1:]] = struct{}{}
		}
	}
	for _, pending := range []iter.Seq[rules.ChainKey]{m.chains.AllUpdates(), m.chains.AllDeletes()} {
		for k := range pending {
			add(k)
		}
	}
	for _, pending := range []iter.Seq[entry]{m.entries.AllUpdates(), m.entries.AllDeletes()} {
		for e := range pending {
			add(e.target())
		}
	}
	return out
}

func (m *Mode) order(k model.FrontendKey) conntrack.Order {
	o := conntrack.Order{Key: flowKey(k)}
	f, served := m.frontends.Get(k)
	if !served {
		o.Unserved = true
		return o
	}
	o.Keep = endpoints(f.Backends)
	if f.Detour.IsValid() {
		to, _ := m.frontends.Get(detourKey(f))
		o.Keep = append(o.Keep, endpoints(to.Backends)...)
	}
	slices.SortFunc(o.Keep, netip.AddrPort.Compare)
	o.Keep = slices.Compact(o.Keep)
	return o
}
