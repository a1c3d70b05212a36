package model

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/kube-ipvs/kube-ipvs/scheduler"
)

// Host has the known facts about the machine that the agent runs on and of its place
// among the nodes. Like every value here it is not changed after being handed over.
type Host struct {
	// Node is this node as the control plane describes it; the zero Node until then.
	Node Node
	// Links has every address of this machine that is not on our own link, with the
	// name of its link: the addresses on which the machine itself answers.
	Links map[netip.Addr]string
	// Gateways are the next hops of the default routes, sorted.
	Gateways []netip.Addr
	// Nodes has the InternalIPs and ExternalIPs of all Nodes, this one's included,
	// with the name of the Node.
	Nodes map[netip.Addr]string
	// Guarded are addresses of Nodes that were deleted or no longer list them, with the name of the
	// Node. As long as a Service claims such an address, the machine may still have it.
	Guarded map[netip.Addr]string
	// Endpoints are the addresses that a Service claims and an endpoint of some Service has.
	Endpoints map[netip.Addr]struct{}
	// APIServers are the addresses at which this agent reaches its API server, sorted.
	APIServers []netip.Addr
	// PodRanges are the ranges of pods of the whole cluster, where they are known.
	PodRanges []netip.Prefix
	// NodePorts are the addresses of this machine on which NodePorts answer, sorted
	// (--nodeport-addresses).
	NodePorts []netip.Addr
	// Weights has what Nodes say of the weight of their endpoints, by the name of the
	// Node; those that say nothing are not in it.
	Weights map[string]NodeWeight
	// Refused are the schedulers that the kernel was asked for and does not have, with
	// what it said.
	Refused map[scheduler.Spec]string
	// NoGUE is why the kernel does not forward by Frontend.GUE, once it was asked; empty else.
	NoGUE string
	// Failing are the endpoints of API servers that fail their probes, with the reason of each
	// (internal/apiprobe).
	Failing map[netip.AddrPort]string
}

// NodeWeight is the annotation kube-ipvs.io/weight of a Node.
type NodeWeight struct {
	Weight uint16
	// Bad is why it cannot be used; the weight counts for nothing then.
	Bad string
}

// Holder names the owner of an address, empty if it is free. An address that has an
// owner is not bound: the node would answer for another machine, or lose a way it
// needs. Cluster IPs ask Uses instead.
func (h Host) Holder(a netip.Addr) string {
	if why := h.Reserved(a); why != "" {
		return why
	}
	if name, ok := h.Guarded[a]; ok {
		return fmt.Sprintf("an address that node %q had before", name)
	}
	if _, ok := h.Endpoints[a]; ok {
		return "the address of an endpoint"
	}
	for _, ranges := range [][]netip.Prefix{h.Node.PodCIDRs, h.PodRanges} {
		for _, r := range ranges {
			if r.Contains(a) {
				return fmt.Sprintf("in a range of pods, %s", r)
			}
		}
	}
	return ""
}

// Reserved names who is known for certain to have an address now, empty if no one is: this
// machine, a Node, or the API server.
func (h Host) Reserved(a netip.Addr) string {
	if why := h.Uses(a); why != "" {
		return why
	}
	if name, ok := h.Nodes[a]; ok {
		return fmt.Sprintf("an address of node %q", name)
	}
	if slices.Contains(h.APIServers, a) {
		return "an address of the API server"
	}
	return ""
}

// Uses names what this machine itself uses an address for, empty if nothing. It goes by
// the kernel alone: the addresses in a Node (status.addresses, which its
// kubelet may write) never takes a cluster IP from a Service.
func (h Host) Uses(a netip.Addr) string {
	if name, ok := h.Links[a]; ok {
		return "an address of this node, on link " + name
	}
	if slices.Contains(h.Gateways, a) {
		return "the default gateway of this node"
	}
	return ""
}

// Equal reports whether two hosts mean the same.
func (h Host) Equal(o Host) bool {
	return h.Node.Equal(o.Node) && maps.Equal(h.Links, o.Links) && maps.Equal(h.Nodes, o.Nodes) &&
		maps.Equal(h.Guarded, o.Guarded) && maps.Equal(h.Endpoints, o.Endpoints) &&
		slices.Equal(h.APIServers, o.APIServers) && slices.Equal(h.PodRanges, o.PodRanges) &&
		slices.Equal(h.Gateways, o.Gateways) && slices.Equal(h.NodePorts, o.NodePorts) &&
		maps.Equal(h.Weights, o.Weights) && maps.Equal(h.Refused, o.Refused) && h.NoGUE == o.NoGUE &&
		maps.Equal(h.Failing, o.Failing)
}

// EnoughAvailable reports whether so many endpoints of all are enough to leave out the others, which
// fail their probes. Below half of them it is more likely that the probes are wrong, or that the
// rest cannot take the load, so that no endpoint is left out.
func EnoughAvailable(available, all int) bool { return 2*available >= all }
