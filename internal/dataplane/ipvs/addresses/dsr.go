package addresses

import (
	"context"
	"net/netip"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/sets"
	"github.com/kube-ipvs/kube-ipvs/internal/delta"
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
// The rules are there while some address needs them. An address that was once detached stays so
// while a Service has it: when backends stop to answer directly, their open connections continue,
// here or on another node.

// direct follows whether others answer from the address of a frontend.
func (m *Manager) direct(c dataplane.Change) {
	a := c.Key.Addr
	_, is := m.dsr[a]
	want := is
	switch {
	case !m.claims.Holder(a).Held:
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
// it: bound, and an entry of the set for them. To be bound and detached is a weaker sign: so is
// for a moment one whose ports were captured until it could be bound.
func (m *Manager) answeredBefore(a netip.Addr) bool {
	_, bound := m.Addresses.Believed(a)
	return bound && m.entries.Has(sets.DirectIP(a))
}

// setDirect notes it of an address. The caller then calls wantAddress.
func (m *Manager) setDirect(a netip.Addr, is bool) {
	f := model.FamilyOf(a)
	before := m.answered(f)
	if is {
		m.dsr[a] = struct{}{}
	} else {
		delete(m.dsr, a)
	}
	m.entries.WantEntry(sets.DirectIP(a), is)
	if before != m.answered(f) {
		m.baseChanged()
	}
}

// answered reports whether others answer from any address of a family.
func (m *Manager) answered(f model.Family) bool {
	for a := range m.dsr {
		if model.FamilyOf(a) == f {
			return true
		}
	}
	return false
}

// KeepDirect has the addresses from which others answered before this process stay so, while
// a Service has them.
func (m *Manager) KeepDirect() {
	for a := range m.claims.Keys() {
		if m.claims.Holder(a).Held && m.answeredBefore(a) {
			m.setDirect(a, true)
			m.wantAddress(a, true)
		}
	}
}

// InspectDetached reads the detached addresses again. Where there should be none it does so in a full
// round only: the kernel lists all routes of this machine for it.
func (m *Manager) InspectDetached(ctx context.Context, full bool) (int, error) {
	if c := m.Detached.Counts(); c.Desired+c.Deletes == 0 && !full {
		return 0, nil
	}
	return m.Detached.Load(ctx)
}

// wantDetached has an address detached, if it is bound and others answer from it, or if
// ports of it are captured.
func (m *Manager) wantDetached(a netip.Addr, bound bool) {
	if _, is := m.dsr[a]; is && bound && a.Is4() || m.Captured(a) {
		m.Detached.SetDesired(a, true)
	} else {
		m.Detached.DeleteDesired(a)
	}
}

// onBound records that the kernel has made an IPv4 address local for all packets.
func (m *Manager) onBound(e delta.Applied[netip.Addr, struct{}]) {
	if _, there := m.Detached.Believed(e.Key); there && e.Key.Is4() && e.Op != delta.Delete {
		m.Detached.SetActual(e.Key, false)
	}
}
