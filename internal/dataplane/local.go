package dataplane

import (
	"net/netip"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// LocalMode is how traffic from pods of this node is told from other traffic:
// the values of --detect-local-mode.
type LocalMode string

// The ways to tell. With an address based mode a family without a range has no
// way to tell.
const (
	LocalClusterCIDR   LocalMode = "ClusterCIDR"
	LocalNodeCIDR      LocalMode = "NodeCIDR"
	LocalBridge        LocalMode = "BridgeInterface"
	LocalInterfaceName LocalMode = "InterfaceNamePrefix"
)

// LocalDetector tells traffic of this node's pods by a match of iptables.
type LocalDetector struct {
	Mode LocalMode
	// ClusterCIDRs serve LocalClusterCIDR: the first of a family counts.
	ClusterCIDRs []netip.Prefix
	// Interface is the bridge, or the prefix of interface names.
	Interface string
}

// Match returns the arguments that match traffic of local pods, in the form of
// iptables-save ("-s 10.244.0.0/16"); prefixed with "! " they match all other
// traffic. False: for this family there is no way to tell.
func (d LocalDetector) Match(f model.Family, node model.Node) (string, bool) {
	switch d.Mode {
	case LocalClusterCIDR, LocalNodeCIDR:
		if p, ok := d.Source(f, node); ok {
			return "-s " + p.String(), true
		}
	case LocalBridge:
		return "-i " + d.Interface, d.Interface != ""
	case LocalInterfaceName:
		return "-i " + d.Interface + "+", d.Interface != ""
	}
	return "", false
}

// Source returns the range that local pods have their addresses from; false where it is not
// known. Of a mode that asks for interfaces it is the range of this Node.
func (d LocalDetector) Source(f model.Family, node model.Node) (netip.Prefix, bool) {
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
