package announce

import (
	"cmp"
	"fmt"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// Node is the part of the decision that is the same for all addresses. The zero Node is one that was
// not judged since the start of this process: routes that are found stay, and none is added.
type Node struct {
	// Serves: load balancers may use this node, as /healthz answers them.
	Serves bool
	// Why has the reason of a node that does not serve.
	Why string
}

// judged reports whether the node was judged since the start of this process.
func (n Node) judged() bool { return n.Serves || n.Why != "" }

// lack is what a frontend lacks to take new connections from outside. The least one explains an address.
type lack uint8

const (
	lacksNothing  lack = iota
	lacksReady         // policy Local: the endpoints of this node terminate
	lacksWeight        // all endpoints have weight 0
	lacksLocal         // policy Local: no endpoint on this node
	lacksEndpoint      // no endpoint at all
)

var lackTexts = [...]string{
	lacksReady: "its endpoints on this node terminate", lacksWeight: "all of its endpoints have weight 0",
	lacksLocal: "no local endpoint", lacksEndpoint: "no endpoint",
}

// lackOf returns what a frontend lacks.
func lackOf(f *model.Frontend) lack {
	switch {
	case len(f.Backends) == 0 && f.Local:
		return lacksLocal
	case len(f.Backends) == 0:
		return lacksEndpoint
	case f.Terminating:
		return lacksReady
	}
	for _, b := range f.Backends {
		if b.Weight > 0 {
			return lacksNothing
		}
	}
	return lacksWeight
}

// mayBe reports whether an address may be announced for a frontend: a load balancer or an operator chose
// it, and clients outside reach it.
func mayBe(f *model.Frontend) bool {
	return f != nil && (f.Kind == model.KindLoadBalancer || f.Kind == model.KindExternalIP)
}

// decide returns why an address is not announced; empty is that it is. One frontend that lacks nothing
// is enough: a router knows addresses and no ports. holder is the machine or pod that has the address.
func decide(least lack, holder string, node Node) string {
	switch {
	case holder != "":
		return "it is " + holder
	case least != lacksNothing:
		return lackTexts[least]
	case !node.Serves:
		return cmp.Or(node.Why, "this node is not ready yet")
	}
	return ""
}

// Misused returns why no route may be in a table, given the priorities of the routing rules that lead to it: packets
// of this machine would follow the routes. Empty is that they may.
func Misused(table uint32, rules []uint32) string {
	if len(rules) == 0 {
		return ""
	}
	return fmt.Sprintf("the routing rule with priority %d leads to table %d, whose routes drop packets", rules[0], table)
}
