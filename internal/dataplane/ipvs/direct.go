package ipvs

import (
	"context"
	"net/netip"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/sets"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/netfilter"
	"github.com/kube-ipvs/kube-ipvs/internal/delta"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/link"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// Backends of a frontend with another way than nat have its address and answer from it
// (kube-ipvs.io/forward). Every node may be the director of such a connection, and the one
// with the backend, which forwards what comes from the address and not to it. IPv4 drops
// that where the address is local, so it is detached (link.DetachedTable):
//
//	mangle PREROUTING   to one of KUBE-DIRECT-IPS: mark       KUBE-DIRECT
//	routing             marked: local                         rows of the table "detached"
//	INPUT               as ever: filters, then IPVS
//
//	mangle FORWARD      a SYN,ACK from one of them: less MSS  KUBE-DIRECT-MSS
//
// The rules are there while some address needs them. An address that was detached once
// stays so while a Service has it: when backends stop to answer themselves, those of
// connections that are there go on, here or on another node, for as long as these live.

// direct follows whether others answer from the address of a frontend.
func (m *Mode) direct(c dataplane.Change) {
	a := c.Key.Addr
	_, is := m.directs[a]
	want := is
	switch {
	case !m.addressClaims.Holder(a).Held:
		want = false
	case c.New != nil && c.New.Forward != model.ForwardNAT:
		want = true
	case !is:
		want = m.answeredBefore(a)
	}
	if want != is {
		m.setDirect(a, want)
	}
}

// answeredBefore reports whether the kernel has an address as it is when others answer from
// it: bound, and an entry of the set for them. That it is bound and detached says less: so is
// for a moment one whose ports were captured until it could be bound.
func (m *Mode) answeredBefore(a netip.Addr) bool {
	_, bound := m.addresses.Believed(a)
	_, listed := m.sets.Members.Believed(sets.DirectIP(a))
	return bound && listed
}

// setDirect notes it of an address. Who calls it sees to wantAddress.
func (m *Mode) setDirect(a netip.Addr, is bool) {
	f := model.FamilyOf(a)
	before := m.answered(f)
	if is {
		m.directs[a] = struct{}{}
	} else {
		delete(m.directs, a)
	}
	m.sets.WantEntry(sets.DirectIP(a), is)
	if before != m.answered(f) {
		m.wantBase()
	}
}

// answered tells whether others answer from any address of a family.
func (m *Mode) answered(f model.Family) bool {
	for a := range m.directs {
		if model.FamilyOf(a) == f {
			return true
		}
	}
	return false
}

// keepDirect has the addresses from which others answered before this process stay so, while
// a Service has them.
func (m *Mode) keepDirect() {
	for a := range m.addressClaims.Keys() {
		if m.addressClaims.Holder(a).Held && m.answeredBefore(a) {
			m.setDirect(a, true)
			m.wantAddress(a, true)
		}
	}
}

// inspectDetached reads them again, where there should be none every seldom-th round: the
// kernel lists all routes of this machine for it.
func (m *Mode) inspectDetached(ctx context.Context) (int, error) {
	if c := m.detached.Counts(); c.Desired+c.Deletes == 0 && m.rounds%seldom != 0 {
		return 0, nil
	}
	return m.detached.Load(ctx)
}

// wantDetached has an address detached, if it is bound and others answer from it, or if
// ports of it are captured.
func (m *Mode) wantDetached(a netip.Addr, bound bool) {
	if _, is := m.directs[a]; is && bound && a.Is4() || m.captured(a) {
		m.detached.SetDesired(a, true)
	} else {
		m.detached.DeleteDesired(a)
	}
}

// boundAgain notes that the kernel has made IPv4 addresses local for all packets.
func (m *Mode) boundAgain(changes []delta.Change[netip.Addr, struct{}], errs []error) {
	for i, c := range changes {
		if _, there := m.detached.Believed(c.Key); there && c.Key.Is4() && c.Op != delta.Delete && delta.ErrorOf(errs, i) == nil {
			m.detached.SetActual(c.Key, false)
		}
	}
}

// directRules mark what is for detached addresses, and see to it that tunnels to backends
// have room for their header.
func (c Config) directRules(w ruleWriter) {
	w.chain("mangle", chainDirect, netfilter.If(w.commented(sets.DirectIPs, dst)).Then(c.setDetachMark()))
	w.chain("mangle", chainDirectMSS, segments(w)...)
}

// setDetachMark gives a packet the mark by which detached addresses are local.
func (c Config) setDetachMark() netfilter.SetMark {
	mark := link.DetachMark(c.Masquerade.Bit)
	return netfilter.SetMark{Value: mark, Mask: mark}
}

// A tunnel puts another IP header in front of packets to the backend. The client makes them
// as large as the backend said in its SYN,ACK, which does not come by the director: so it is
// made to say less where it leaves its node. There is no rule to subtract, but by ranges.
var (
	// headers are those of IP and TCP together, without options; tunnelHeader is what a tunnel adds at most.
	headers      = map[model.Family]int{model.IPv4: 40, model.IPv6: 60}
	tunnelHeader = map[model.Family]int{model.IPv4: 20 + gueHeader, model.IPv6: 40 + gueHeader}
	// commonMTUs are those of pods in networks with and without tunnels of their own; one
	// between two of them loses what it has beyond the lesser.
	commonMTUs = []int{1280, 1360, 1400, 1420, 1440, 1450, 1460, 1480, 1500, 8900, 8950, 9000}
)

const (
	largestSegment = 65535
	// gueHeader are those of UDP and GUE, which few tunnels add: 12 bytes less for all are less than to tell them apart.
	gueHeader = 8 + 4
)

// segments lower the segment size that a SYN,ACK offers. Of a range the least counts; the
// ranges rise, so that what one has lowered is never lowered by another.
func segments(w ruleWriter) []netfilter.Rule {
	synAck := netfilter.TCPFlags{Of: netfilter.SYN | netfilter.ACK, Set: netfilter.SYN | netfilter.ACK}
	list := []netfilter.Rule{
		netfilter.If(netfilter.Not{Match: netfilter.TCP}).Then(netfilter.Return),
		netfilter.If(w.notIn(sets.DirectIPs, src)).Then(netfilter.Return),
	}
	for i, mtu := range commonMTUs {
		from, to := mtu-headers[w.family], largestSegment
		if i+1 < len(commonMTUs) {
			to = commonMTUs[i+1] - headers[w.family] - 1
		}
		size := netfilter.SegmentSize{From: uint16(from), To: uint16(to)}
		list = append(list, netfilter.If(netfilter.TCP, synAck, size).Then(netfilter.SetSegmentSize(from-tunnelHeader[w.family])))
	}
	return list
}

// extras are the chains and sets of a family that some address needs now.
func (m *Mode) extras(f model.Family) extras { return extras{m.answered(f), m.capturing(f)} }

// hasSet reports whether a set is wanted: those that are always there are.
func (e extras) hasSet(name string) bool {
	switch name {
	case sets.DirectIPs:
		return e.direct
	case sets.Capture, sets.CaptureIPs:
		return e.capture
	}
	return true
}

// unwantExtras takes the rules of a family away that no address needs.
func (m *Mode) unwantExtras(f model.Family, wanted extras) {
	for _, j := range jumps {
		if k := netfilter.Key(f, j.Table, j.Target); !wanted.has(k) {
			m.jumps.DeleteDesired(j.In(f))
			m.chains.DeleteDesired(k)
		}
	}
}

// isDirectChain tells whether a chain is there for backends that answer themselves.
func isDirectChain(k netfilter.ChainKey) bool {
	return k.Table == "mangle" && (k.Name == chainDirect || k.Name == chainDirectMSS)
}

// detachedStore detaches addresses.
type detachedStore struct {
	mode  *Mode
	links Links
}

// List returns those that are detached; false is in part.
func (s detachedStore) List(ctx context.Context) (map[netip.Addr]bool, error) {
	return s.links.ListDetached(ctx)
}

// Write hands all changes over in one batch.
func (s detachedStore) Write(ctx context.Context, changes []delta.Change[netip.Addr, bool]) []error {
	batch := make([]link.Change, len(changes))
	for i, c := range changes {
		batch[i] = link.Change{Op: link.Add, Addr: c.Key}
		if c.Op == delta.Delete {
			batch[i].Op = link.Delete
		}
	}
	errs := s.links.WriteDetached(ctx, batch)
	for i, c := range changes {
		if c.Op != delta.Delete && delta.ErrorOf(errs, i) == nil {
			s.mode.addressAdded(c.Key)
		}
	}
	return errs
}
