package netfilter

import (
	"net/netip"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// LocalMode is how traffic from pods of this node is recognized: the values of --detect-local-mode.
type LocalMode string

// The ways to tell. With an address based mode a family without a range has no
// way to tell.
const (
	LocalClusterCIDR   LocalMode = "ClusterCIDR"
	LocalNodeCIDR      LocalMode = "NodeCIDR"
	LocalBridge        LocalMode = "BridgeInterface"
	LocalInterfaceName LocalMode = "InterfaceNamePrefix"
)

// LocalPods tells traffic of this node's pods from other traffic.
type LocalPods struct {
	Mode LocalMode
	// ClusterCIDRs serve LocalClusterCIDR: the first of a family counts.
	ClusterCIDRs []netip.Prefix
	// Interface is the bridge, or the prefix of interface names.
	Interface string
}

// Match returns the condition that a packet is from a local pod; nil where there is no way to
// tell for this family.
func (d LocalPods) Match(f model.Family, node model.Node) Match {
	switch d.Mode {
	case LocalClusterCIDR, LocalNodeCIDR:
		if p, ok := d.Source(f, node); ok {
			return Source(p)
		}
	case LocalBridge, LocalInterfaceName:
		if d.Interface != "" {
			return Input{Name: d.Interface, Prefix: d.Mode == LocalInterfaceName}
		}
	}
	return nil
}

// Source returns the range that local pods have their addresses from; false where it is not
// known. In a mode that goes by interfaces it is the range of this Node.
func (d LocalPods) Source(f model.Family, node model.Node) (netip.Prefix, bool) {
	ranges := node.PodCIDRs
	if d.Mode == LocalClusterCIDR {
		ranges = d.ClusterCIDRs
	}
	for _, p := range ranges {
		if model.FamilyOf(p.Addr()) == f && p.Bits() > 0 { // all addresses tell nothing
			return p.Masked(), true
		}
	}
	return netip.Prefix{}, false
}

// Holds reports whether an address counts as one of a local pod; known is false where the mode
// does not go by addresses, or has no range of the family.
func (d LocalPods) Holds(a netip.Addr, node model.Node) (is, known bool) {
	source, ok := d.Match(model.FamilyOf(a), node).(Source)
	return ok && netip.Prefix(source).Contains(a), ok
}
