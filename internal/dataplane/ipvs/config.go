package ipvs

import (
	"net/netip"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/addresses"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/chains"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/netfilter"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// Config has the settings of the mode.
type Config struct {
	// Node is the name of this node. Its order of destinations differs by it from that of other nodes.
	Node string
	// Families are the address families to serve.
	Families []model.Family
	// MasqueradeAll rewrites the source of all traffic to cluster IPs.
	MasqueradeAll bool
	Masquerade    netfilter.Masquerade
	// Local tells pods of this node from other clients.
	Local netfilter.LocalPods
	// ExcludeCIDRs hold virtual servers of other programs, which are never adopted and never deleted.
	ExcludeCIDRs []netip.Prefix
	// Binding is how addresses become local to this machine; "" is addresses.BindAddress.
	Binding addresses.Binding
	// ServiceCIDRs are the ranges that may be local as a whole.
	ServiceCIDRs []netip.Prefix
	// AnnounceTable is the routing table of the routes that announce addresses; 0 announces none.
	AnnounceTable uint32
}

// excluded reports whether virtual servers of other programs are at an address.
func (c Config) excluded(a netip.Addr) bool {
	for _, p := range c.ExcludeCIDRs {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

// rules returns the settings of rules.
func (c Config) rules() chains.Config {
	return chains.Config{Families: c.Families, MasqueradeAll: c.MasqueradeAll, Masquerade: c.Masquerade, Local: c.Local}
}
