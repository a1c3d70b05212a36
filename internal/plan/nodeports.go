package plan

import (
	"net/netip"
	"slices"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// NodePortSelection is the selection of a node's addresses on which its NodePorts answer
// (--nodeport-addresses, as kube-proxy 1.37 reads it: the words and networks
// may be mixed). The zero value means All.
type NodePortSelection struct {
	// Primary is the node's first address of each family, as its Node lists them.
	Primary bool
	// Localhost is 127.0.0.1 and ::1, see Relayed.
	Localhost bool
	// All is every address of the machine.
	All bool
	// CIDRs are networks, of either family.
	CIDRs []netip.Prefix
}

// NodePortAddresses returns the addresses on the machine's links on which NodePorts answer,
// sorted (internal/DECISIONS.md, NodePort addresses). Addresses on kube-ipvs0 are never
// among them.
//
// A family without a network is open on all addresses if only networks are given, as in
// kube-proxy. A keyword applies to both families: Primary opens only the primary
// addresses, and none until the Node is known. Localhost selects none, because the kernel
// cannot serve loopback addresses (see Relayed).
func NodePortAddresses(selection NodePortSelection, host model.Host) []netip.Addr {
	var out []netip.Addr
	for addr := range host.Links {
		if selection.holds(addr, host.Node.Addresses) {
			out = append(out, addr)
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return out
}

// holds reports whether an address is selected; node has the addresses of the Node.
func (s NodePortSelection) holds(addr netip.Addr, node []netip.Addr) bool {
	f := model.FamilyOf(addr)
	return s.Everywhere(f) || inside(s.CIDRs, addr) || s.Primary && addr == firstOf(node, f)
}

// Everywhere reports whether NodePorts of a family are served on every address of the machine,
// future ones included.
func (s NodePortSelection) Everywhere(f model.Family) bool {
	ofFamily := func(p netip.Prefix) bool { return model.FamilyOf(p.Addr()) == f }
	open := func(p netip.Prefix) bool { return ofFamily(p) && p.Bits() == 0 }
	return s.All || slices.ContainsFunc(s.CIDRs, open) ||
		!s.Primary && !s.Localhost && !slices.ContainsFunc(s.CIDRs, ofFamily)
}

// loopback is the address by which NodePorts on IPv4 loopback are known.
var loopback = netip.AddrFrom4([4]byte{127, 0, 0, 1})

// WithLoopback adds IPv4 loopback to the addresses on which NodePorts answer, sorted.
func WithLoopback(addrs []netip.Addr) []netip.Addr {
	i, _ := slices.BinarySearchFunc(addrs, loopback, netip.Addr.Compare)
	return slices.Insert(addrs, i, loopback)
}

// Loopback reports whether NodePorts are also served on IPv4 loopback, in a mode that supports it.
func (s NodePortSelection) Loopback() bool {
	return s.Localhost || s.Everywhere(model.IPv4) || inside(s.CIDRs, loopback)
}

// Relayed returns the loopback addresses on which a process serves NodePorts: those that a keyword
// or a loopback network asks for. All addresses of the machine are without them, as in kube-proxy.
func (s NodePortSelection) Relayed(families []model.Family) (out []netip.Addr) {
	for _, addr := range []netip.Addr{loopback, netip.IPv6Loopback()} {
		chosen := func(p netip.Prefix) bool { return p.Addr().IsLoopback() && p.Contains(addr) }
		if slices.Contains(families, model.FamilyOf(addr)) && (s.Localhost || slices.ContainsFunc(s.CIDRs, chosen)) {
			out = append(out, addr)
		}
	}
	return out
}

// firstOf is the first address of a family, the zero Addr without one.
func firstOf(all []netip.Addr, f model.Family) netip.Addr {
	i := slices.IndexFunc(all, func(a netip.Addr) bool { return model.FamilyOf(a) == f })
	if i < 0 {
		return netip.Addr{}
	}
	return all[i]
}
