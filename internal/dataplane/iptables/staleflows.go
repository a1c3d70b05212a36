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

// flows notes frontends whose flows may be stale, and orders kernel/conntrack to look at them.
// Connection tracking sends a flow where its first packet went, as long as the flow lasts. A UDP
// flow follows the endpoints. Of TCP and SCTP only flows without a connection are deleted
// (conntrack.Order.Connections). These are flows that a client began before the frontend was in
// place, which are not translated, and flows to an endpoint that is gone and did not answer.
// Established connections end by themselves.
type flows struct {
	config    Config
	host      *model.Host
	kernel    Flows // nil looks at none
	frontends *dataplane.Frontends
	services  *services
	tables    *tables
	noted     map[model.FrontendKey]flowNote
}

// flowNote is what a frontend waits for before its flows are looked at.
type flowNote struct {
	// hashes are the ends of the names of chains that have to be in place.
	hashes []string
	// localised: the policy became Local, and clients outside this node have endpoints
	// elsewhere.
	localised bool
}

// onChange notes a frontend that lost an endpoint, or has its first ones.
func (s *flows) onChange(c dataplane.Change) {
	if c.New != nil && c.Old != nil && len(endpoints(c.Old.Backends)) > 0 && holdsAll(takers(c.New), takers(c.Old)) {
		return
	}
	for _, f := range []*model.Frontend{c.Old, c.New} {
		if f != nil && (c.New != nil || c.Key.Protocol == model.UDP) {
			s.note(*f)
		}
	}
	if note, noted := s.noted[c.Key]; noted && c.Old != nil && c.New != nil && c.New.Local && !c.Old.Local {
		note.localised = true
		s.noted[c.Key] = note
	}
}

// note adds a frontend, and the chains that it waits for.
func (s *flows) note(f model.Frontend) {
	note, hash := s.noted[f.Key], hashed(s.config.nameOf(f), f.Key.Protocol.String())
	if !slices.Contains(note.hashes, hash) {
		note.hashes = append(note.hashes, hash)
		s.noted[f.Key] = note
	}
}

// takers lists the endpoints whose flows may continue: those that take new ones, and, for a
// protocol with connections, those that finish existing ones.
func takers(f *model.Frontend) []netip.AddrPort {
	out := endpoints(f.Backends)
	if f.Key.Protocol != model.UDP {
		out = append(out, f.Kept...)
	}
	return out
}

// onTouched notes the frontends of a Service whose clients on this node are answered
// by the endpoints of one that was noted.
func (s *flows) onTouched(id model.ServiceID) {
	if len(s.noted) == 0 {
		return
	}
	for k := range s.services.inForce[id] {
		f, _ := s.frontends.Get(k)
		if _, noted := s.noted[detourKey(f)]; noted {
			s.note(f)
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

// onFound notes every frontend after the kernel was read: endpoints may have left while no
// agent ran, and packets went untranslated while rules were lost.
func (s *flows) onFound() {
	for _, keys := range s.services.inForce {
		for k := range keys {
			if f, ok := s.frontends.Get(k); ok {
				s.note(f)
			}
		}
	}
}

// orderAll hands over the frontends that were noted, once the kernel has their rules. While a rule of a
// frontend, or a jump of its family, is not in place, its clients begin such flows again.
func (s *flows) orderAll() {
	if len(s.noted) == 0 {
		return
	}
	unsettled, jumpless := s.unsettled(), s.jumpless()
	var out []conntrack.Order
	for k, note := range s.noted {
		if jumpless[model.FamilyOf(k.Addr)] || slices.ContainsFunc(note.hashes, func(h string) bool { return has(unsettled, h) }) {
			continue
		}
		if o, needed := s.order(k, note); needed {
			out = append(out, o)
		}
		delete(s.noted, k)
	}
	if s.kernel != nil && len(out) > 0 {
		s.kernel.Order(out...)
	}
}

// jumpless returns the families of which a jump is not in place.
func (s *flows) jumpless() map[model.Family]bool {
	out := map[model.Family]bool{}
	for k := range s.tables.jumps.AllUpdates() {
		out[k.Family] = true
	}
	return out
}

// unsettled returns the ends of the names of chains of Services that are pending, or to which a pending
// entry leads.
func (s *flows) unsettled() map[string]struct{} {
	out := map[string]struct{}{}
	add := func(k netfilter.ChainKey) {
		if netfilter.OfService(k) {
			out[k.Name[strings.LastIndexByte(k.Name, '-')+1:]] = struct{}{}
		}
	}
	for _, pending := range []iter.Seq[netfilter.ChainKey]{s.tables.chains.AllUpdates(), s.tables.chains.AllDeletes()} {
		for k := range pending {
			add(k)
		}
	}
	for _, pending := range []iter.Seq[entry]{s.tables.entries.AllUpdates(), s.tables.entries.AllDeletes()} {
		for e := range pending {
			add(e.target())
		}
	}
	return out
}

// order returns the order for the frontend at a key; false is none.
func (s *flows) order(k model.FrontendKey, note flowNote) (conntrack.Order, bool) {
	o := conntrack.Order{Key: k, Connections: k.Protocol != model.UDP}
	f, served := s.frontends.Get(k)
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
	to, _ := s.frontends.Get(detourKey(f))
	near := slices.DeleteFunc(sorted(takers(&to)), func(a netip.AddrPort) bool { return slices.Contains(o.Keep, a) })
	switch from := s.clients(model.FamilyOf(k.Addr)); {
	case len(near) == 0:
	case !f.Local: // every client may be answered by all of them
		o.Keep = sorted(append(o.Keep, near...))
	case len(from) > 0 || !note.localised:
		o.Near, o.From = near, from
	}
	return o, true
}

// clients returns the addresses from which clients of this node dial: its pods and its own. They
// are nil where the range of its pods is not known.
func (s *flows) clients(f model.Family) []netip.Prefix {
	pods, known := s.config.Local.Source(f, s.host.Node)
	if !known {
		return nil
	}
	out := []netip.Prefix{pods}
	for a := range s.host.Links {
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
