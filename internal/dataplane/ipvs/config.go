package ipvs

import (
	"net/netip"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// Config is what the mode is told about the node and by its operator.
type Config struct {
	// Families are the address families to serve.
	Families []model.Family
	// MasqueradeAll rewrites the source of all traffic to cluster IPs.
	MasqueradeAll bool
	// MasqueradeBit is the bit of the packet mark that asks for it: 0 to 31.
	MasqueradeBit uint8
	// RandomFully tells whether this family's iptables knows --random-fully.
	RandomFully func(model.Family) bool
	// NodePorts is the port range of the API server's --service-node-port-range,
	// which a rewritten source port must not come from; the zero range is unknown.
	NodePorts PortRange
	// Local tells pods of this node from everybody else.
	Local dataplane.LocalDetector
	// ExcludeCIDRs hold virtual servers of others: never adopted, never deleted.
	ExcludeCIDRs []netip.Prefix
}

// PortRange is a range of ports with both ends; the zero value is none.
type PortRange struct{ First, Last uint16 }

// excluded tells whether somebody else's virtual servers live at an address.
func (c Config) excluded(a netip.Addr) bool {
	for _, p := range c.ExcludeCIDRs {
		if p.Contains(a) {
			return true
		}
	}
	return false
}
