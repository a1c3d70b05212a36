package iptables

import (
	"iter"
	"net/netip"
	"slices"
	"strings"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/netfilter"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/conntrack"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// flows are the frontends whose flows have to be looked at: connection tracking sends a flow
// where its first packet went, as long as the flow lasts. A UDP flow follows the endpoints.
// Of TCP and SCTP only flows without a connection go (conntrack.Order.Connections): those
// that a client began before the frontend was there, which go on untranslated, and those to
// an endpoint that is gone and did not answer. What is established ends by itself.
type flows map[model.FrontendKey]flowNote

// flowNote says what a frontend waits for before its flows are looked at.
type flowNote struct {
	// hashes are the ends of the names of chains that have to be in place.
	hashes []string
	// localised: the policy became Local, and clients outside this node have endpoints
	// elsewhere.
	localised bool
}

// noteFlows remembers a frontend that lost an endpoint, or has its first ones.
func (m *Mode) noteFlows(c dataplane.Change) {
	if c.New != nil && c.Old != nil && len(endpoints(c.Old.Backends)) > 0 && holdsAll(takers(c.New), takers(c.Old)) {
		return
	}
	for _, f := range []*model.Frontend{c.Old, c.New} {
		if f != nil && (c.New != nil || c.Key.Protocol == model.UDP) {
			m.noteFlow(*f)
		}
	}
	if note, noted := m.flows[c.Key]; noted && c.Old != nil && c.New != nil && c.New.Local && !c.Old.Local {
		note.localised = true
		m.flows[c.Key] = note
	}
}

func (m *Mode) noteFlow(f model.Frontend) {
	note, hash := m.flows[f.Key], hashed(m.config.nameOf(f), f.Key.Protocol.String())
	if !slices.Contains(note.hashes, hash) {
		note.hashes = append(note.hashes, hash)
		m.flows[f.Key] = note
	}
}

// takers lists the endpoints whose flows go on: those that take new ones, and, of a protocol
// with connections, those that finish what they have.
func takers(f *model.Frontend) []netip.AddrPort {
	out := endpoints(f.Backends)
	if f.Key.Protocol != model.UDP {
		out = append(out, f.Kept...)
	}
	return out
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

// holdsAll reports whether all of some endpoints are among others.
func holdsAll(all, some []netip.AddrPort) bool {
	return !slices.ContainsFunc(some, func(a netip.AddrPort) bool { return !slices.Contains(all, a) })
}

// noteFound notes every frontend after the kernel was read: endpoints may have left while no
// agent ran, and packets went untranslated while rules were lost.
func (m *Mode) noteFound() {
	for _, keys := range m.inForce {
		for k := range keys {
			if f, ok := m.frontends.Get(k); ok {
				m.noteFlow(f)
			}
		}
	}
}

// orderFlows hands over what was noted, once the kernel has all of it: while a rule of a
// frontend, or a jump of its family, is not in place, its clients begin such flows again.
func (m *Mode) orderFlows() {
	if len(m.flows) == 0 {
		return
	}
	unsettled, jumpless := m.unsettled(), m.jumpless()
	var out []conntrack.Order
	for k, note := range m.flows {
		if jumpless[model.FamilyOf(k.Addr)] || slices.ContainsFunc(note.hashes, func(h string) bool { return has(unsettled, h) }) {
			continue
		}
		if o, needed := m.order(k, note); needed {
			out = append(out, o)
		}
		delete(m.flows, k)
	}
	if m.deps.Flows != nil && len(out) > 0 {
		m.deps.Flows.Order(out...)
	}
}

// jumpless are the families of which a jump is not in place.
func (m *Mode) jumpless() map[model.Family]bool {
	out := map[model.Family]bool{}
	for k := range m.jumps.AllUpdates() {
		out[k.Family] = true
	}
	return out
}

// unsettled are the ends of the names of chains of Services that are not as they should
// be, or that something leads to wrongly.
func (m *Mode) unsettled() map[string]struct{} {
	out := map[string]struct{}{}
	add := func(k netfilter.ChainKey) {
		if netfilter.OfService(k) {
			out[k.Name[strings.LastIndexByte(k.Name, '-')+1:]] = struct{}{}
		}
	}
	for _, pending := range []iter.Seq[netfilter.ChainKey]{m.chains.AllUpdates(), m.chains.AllDeletes()} {
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

// order is what the frontend at a key asks of connection tracking; false: nothing.
func (m *Mode) order(k model.FrontendKey, note flowNote) (conntrack.Order, bool) {
	o := conntrack.Order{Key: k, Connections: k.Protocol != model.UDP}
	f, served := m.frontends.Get(k)
	if !served {
		o.Unserved = true
		return o, !o.Connections // the connections of a deleted Service end by themselves
	}
	if o.Connections && f.Kind == model.KindDetour { // no client dials it
		return o, false
	}
	o.Keep = sorted(takers(&f))
	if !f.Detour.IsValid() {
		return o, true
	}
	to, _ := m.frontends.Get(detourKey(f))
	near := slices.DeleteFunc(sorted(takers(&to)), func(a netip.AddrPort) bool { return slices.Contains(o.Keep, a) })
	switch from := m.clients(model.FamilyOf(k.Addr)); {
	case len(near) == 0:
	case !f.Local: // every client may be answered by all of them
		o.Keep = sorted(append(o.Keep, near...))
	case len(from) > 0 || !note.localised:
		o.Near, o.From = near, from
	}
	return o, true
}

// clients are the addresses from which clients of this node dial: its pods and its own. They
// are nil where the range of its pods is not known.
func (m *Mode) clients(f model.Family) []netip.Prefix {
	pods, known := m.config.Local.Source(f, m.host.Node)
	if !known {
		return nil
	}
	out := []netip.Prefix{pods}
	for a := range m.host.Links {
		if model.FamilyOf(a) == f {
			out = append(out, netip.PrefixFrom(a, a.BitLen()))
		}
	}
	return out
}

func sorted(list []netip.AddrPort) []netip.AddrPort {
	slices.SortFunc(list, netip.AddrPort.Compare)
	return slices.Compact(list)
}
