package plan

import (
	"slices"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// scope is the set of endpoints of a port within reach of this node's clients.
type scope uint8

const (
	// anywhere is every endpoint of the port.
	anywhere scope = iota
	// onNode is the endpoints that run on this node.
	onNode
	// hintedNode is the endpoints with a hint that names this node.
	hintedNode
	// hintedZone is the endpoints with a hint that names this node's zone.
	hintedZone
)

// choice is the rule by which endpoints become backends of a frontend.
type choice struct {
	opts  *Options
	scope scope
	// leaving takes the endpoints that still serve while they terminate,
	// instead of the ready ones.
	leaving bool
}

// choose is kube-proxy's rule (pkg/proxy/topology.go, CategorizeEndpoints) for
// traffic that comes from inside the cluster. Its specification:
//
//	endpoint    ready    as in its condition; nil counts as ready
//	            leaving  serving and terminating
//	            dead     neither; never used
//
//	internalTrafficPolicy Cluster (the "cluster list")
//	  1. the ready endpoints within the topology (see topology), else
//	  2. all leaving endpoints, on any node, whatever their hints.
//
//	internalTrafficPolicy Local (the "local list")
//	  1. the ready endpoints on this node, else
//	  2. the leaving endpoints on this node, else
//	  3. no endpoint. Hints play no part.
//
// Under policy Local no endpoint of another node is used. kube-proxy's ipvs mode does so when the
// Service also has a NodePort or an external address, which is a defect; its iptables mode does
// not. All candidates belong to one port and one family: each is decided alone.
func choose(o *Options, all []candidate, local bool) choice {
	c := choice{opts: o, scope: onNode}
	if !local {
		c.scope = topology(o, all)
	}
	// A topology is only in force when it has ready endpoints. So this can only
	// turn to leaving ones under anywhere and onNode, as the rule demands.
	c.leaving = count(all, c.takes) == 0
	return c
}

// takes reports whether the endpoint becomes a backend.
func (c choice) takes(e *model.Endpoint) bool {
	if c.leaving {
		return e.Serving && e.Terminating && c.reaches(e)
	}
	return e.Ready && c.reaches(e)
}

func (c choice) reaches(e *model.Endpoint) bool {
	switch c.scope {
	case onNode:
		return isOn(e, c.opts.Node)
	case hintedNode:
		return slices.Contains(e.NodeHints(), c.opts.Node)
	case hintedZone:
		return slices.Contains(e.ZoneHints(), c.opts.Zone)
	}
	return true
}

// topology decides how far the cluster list reaches, by the hints of the ready
// endpoints alone, as kube-proxy does. The first rule that holds counts:
//
//  1. every ready endpoint has a node hint and one names this node: same node;
//  2. every ready endpoint has a zone hint and one names this zone: same zone;
//  3. anywhere.
//
// Hints apply to all endpoints or to none, because an endpoint without them means that the
// controller has not written all of them yet. A node without a name or a zone is named by no hint.
func topology(o *Options, all []candidate) scope {
	node, zone := hintTally{want: o.Node}, hintTally{want: o.Zone}
	for _, c := range all {
		if c.ep.Ready {
			node.add(c.ep.NodeHints())
			zone.add(c.ep.ZoneHints())
		}
	}
	switch {
	case node.holds():
		return hintedNode
	case zone.holds():
		return hintedZone
	}
	return anywhere
}

// hintTally goes through the hints of the ready endpoints for one name.
type hintTally struct {
	want           string
	named, missing bool
}

func (t *hintTally) add(hints []string) {
	t.missing = t.missing || len(hints) == 0
	t.named = t.named || slices.Contains(hints, t.want)
}

func (t *hintTally) holds() bool {
	return t.want != "" && t.named && !t.missing
}
