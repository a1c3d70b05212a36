package main

import (
	"net/netip"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// localPodFor tells whether an address counts as one of this node's pods, where the settings
// go by addresses.
func localPodFor(now settings) func(netip.Addr, model.Node) bool {
	return func(a netip.Addr, node model.Node) bool {
		is, _ := localPods(now()).Holds(a, node)
		return is
	}
}
