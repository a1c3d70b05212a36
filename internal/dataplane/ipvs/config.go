package ipvs

import (
	"net/netip"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/addresses"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/netfilter"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// Config is what the mode is told about the node and by its operator.
type Config struct {
	// Node is the name of this node, by which its order of destinations differs from
	// that of others.
	Node string
	// Families are the address families to serve.
	Families []model.Family
	// MasqueradeAll rewrites the source of all traffic to cluster IPs.
	MasqueradeAll bool
	Masquerade    netfilter.Masquerade
	// Local tells pods of this node from everybody else.
	Local netfilter.LocalPods
	// ExcludeCIDRs hold virtual servers of others: never adopted, never deleted.
	ExcludeCIDRs []netip.Prefix
	// Binding says how addresses become local to this machine; "" is BindAddress.
	Binding addresses.Binding
	// ServiceCIDRs are the ranges that may be local as a whole.
	ServiceCIDRs []netip.Prefix
}

// excluded tells whether somebody else's virtual servers live at an address.
func (c Config) excluded(a netip.Addr) bool {
	for _, p := range c.ExcludeCIDRs {
		if p.Contains(a) {
			return true
		}
	}
	return false
}
