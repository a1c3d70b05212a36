package iptables

import (
	"net/netip"
	"slices"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/conntrack"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// flows are the UDP frontends whose flows have to be looked at: connection tracking sends
// a flow where it went first for as long as it goes on (decisions 12). Connections of TCP
// and SCTP are left alone, for what they have begun is theirs to finish.
type flows map[model.FrontendKey]struct{}

// note remembers a frontend of which somebody left, or that has its first endpoints:
// before that a flow was sent on untranslated, and stays so.
func (f flows) note(c dataplane.Change) {
	if c.Key.Protocol != model.UDP || c.New != nil && c.Old != nil && holdsAll(c.New.Backends, c.Old.Backends) && len(c.Old.Backends) > 0 {
		return
	}
	f[c.Key] = struct{}{}
}

// holdsAll tells whether all of some backends are among others.
func holdsAll(all, some []model.Backend) bool {
	return !slices.ContainsFunc(some, func(b model.Backend) bool { return !slices.Contains(all, b) })
}

// noteFound notes every frontend: nobody knows what changed before the kernel was read.
func (m *Mode) noteFound() {
	for _, keys := range m.inForce {
		for k := range keys {
			if k.Protocol == model.UDP {
				m.flows[k] = struct{}{}
			}
		}
	}
}

// orderFlows hands over what was noted, once the kernel has all of it. What could not be
// written, or may belong to an input that cannot be read, goes on answering.
func (m *Mode) orderFlows(wait bool) {
	if wait || len(m.flows) == 0 {
		return
	}
	if m.deps.Flows != nil {
		out := make([]conntrack.Order, 0, len(m.flows))
		for k := range m.flows {
			out = append(out, m.order(k))
		}
		m.deps.Flows.Order(out...)
	}
	clear(m.flows)
}

func (m *Mode) order(k model.FrontendKey) conntrack.Order {
	o := conntrack.Order{Key: conntrack.Key{Addr: k.Addr, Port: k.Port, Protocol: uint8(k.Protocol)}}
	f, served := m.frontends.Get(k)
	if !served {
		o.Unserved = true
		return o
	}
	o.Keep = endpoints(f.Backends)
	if f.Detour.IsValid() {
		to, _ := m.frontends.Get(model.FrontendKey{Addr: f.Detour.Addr(), Port: f.Detour.Port(), Protocol: k.Protocol})
		o.Keep = append(o.Keep, endpoints(to.Backends)...)
	}
	slices.SortFunc(o.Keep, netip.AddrPort.Compare)
	o.Keep = slices.Compact(o.Keep)
	return o
}
