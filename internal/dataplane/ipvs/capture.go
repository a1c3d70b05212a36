package ipvs

import (
	"net/netip"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/sets"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/netfilter"
	"github.com/kube-ipvs/kube-ipvs/internal/delta"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// An address of a Service that another machine needs is not bound: the node would lose its
// way there. Packets to the ports of the Service are captured instead, and only they:
//
//	mangle PREROUTING   to one of KUBE-CAPTURE: mark          KUBE-CAPTURE
//	routing             marked: local                         rows of the table "detached"
//	INPUT               as ever: filters, then IPVS
//
// A Service without endpoints refuses. IPVS would do so from the address itself, which the
// kernel does not for one that is not bound (icmp_route_lookup in net/ipv4/icmp.c). So its
// ports are not marked, and what is on its way there is refused:
//
//	filter FORWARD      new, to a frontend of the address: refuse   KUBE-CAPTURE
//
// What the host sends needs neither: IPVS takes it in OUTPUT, wherever the route leads.
// Errors about a connection (ICMP "fragmentation needed") come to the address and carry no
// port: those of connections that pass this node are captured, too. Everything else, ping
// included, goes where it went before.
//
// The virtual server is the same as with a bound address. So a connection goes on when the
// address comes to be bound, or not to be bound any more.

// captures follows which addresses have captured ports.
type captures struct {
	// frontends counts those that are captured, by family.
	frontends map[model.Family]int
	// marked are the addresses of those among them that do not refuse.
	marked *delta.Claims[model.FrontendKey, netip.Addr, struct{}]
}

func newCaptures() captures {
	return captures{map[model.Family]int{}, delta.NewClaims[model.FrontendKey, netip.Addr, struct{}](model.FrontendKey.Compare)}
}

// capture follows one frontend.
func (m *Mode) capture(c dataplane.Change) {
	was, is := c.Old != nil && c.Old.Capture, c.New != nil && c.New.Capture
	if !was && !is {
		return
	}
	f := model.FamilyOf(c.Key.Addr)
	before := m.capturing(f)
	m.captures.frontends[f] += pick(is, 1, 0) - pick(was, 1, 0)
	var marked map[netip.Addr]struct{}
	if is && sets.Captures(c.New) {
		marked = map[netip.Addr]struct{}{c.Key.Addr: {}}
	}
	for _, h := range m.captures.marked.Set(c.Key, marked) {
		m.wantAddress(h.Key, m.addressClaims.Holder(h.Key).Held)
	}
	if before != m.capturing(f) {
		m.wantBase()
	}
}

// capturing reports whether any address of a family has captured ports.
func (m *Mode) capturing(f model.Family) bool { return m.captures.frontends[f] > 0 }

// captured reports whether an address has captured ports and is not local in another way.
func (m *Mode) captured(a netip.Addr) bool {
	return m.captures.marked.Holder(a).Held && !m.addressClaims.Holder(a).Held && !holds(m.binding.ranges, a)
}

// mayCapture reports whether packets to an address may become local: a port is marked, and
// a virtual server is there to take them.
func (m *Mode) mayCapture(a netip.Addr) bool {
	for _, k := range m.captures.marked.Claimants(a) {
		_, marked := m.sets.Members.Believed(sets.CaptureEntry(k))
		_, served := m.servers.Believed(k)
		if marked && served {
			return m.baseInPlace(a)
		}
	}
	return false
}

// captureRules mark what is captured.
func (c Config) captureRules(w ruleWriter) {
	w.chain("mangle", chainCapture,
		netfilter.If(w.commented(sets.Capture, dstPort)).Then(c.setDetachMark()),
		netfilter.If(w.commented(sets.CaptureIPs, dst), netfilter.Related).Then(c.setDetachMark()),
	)
	list := []netfilter.Rule{
		netfilter.If(netfilter.Not{Match: netfilter.New}).Then(netfilter.Return),
		netfilter.If(w.notIn(sets.CaptureIPs, dst)).Then(netfilter.Return),
	}
	for _, name := range []string{sets.ExternalIP, sets.ExternalIPLocal, sets.LoadBalancer, sets.ClusterIP} {
		list = append(list, netfilter.If(netfilter.New, w.in(name, dstPort)).Then(netfilter.Reject{}))
	}
	w.chain("filter", chainCapture, list...)
}

// isCaptureChain reports whether a chain is there for captured addresses.
func isCaptureChain(k netfilter.ChainKey) bool { return k.Name == chainCapture }
