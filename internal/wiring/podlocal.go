package wiring

import (
	"net/netip"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// PodMatcher returns a function that reports whether an address is one of this node's pods, where
// the settings go by addresses.
func PodMatcher(now Settings) func(netip.Addr, model.Node) bool {
	return func(a netip.Addr, node model.Node) bool {
		is, _ := LocalPods(now()).Holds(a, node)
		return is
	}
}
