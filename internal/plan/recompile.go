package plan

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// Affects reports whether the plan of a Service may differ between these Options and the old ones.
// It errs on the side of yes. It is called for every Service, with its slices, whenever the node
// changes, so it must be cheap for a Service that the change does not affect.
func (o Options) Affects(old Options, svc *model.Service, behind []*model.Slice) bool {
	return o.affectsAll(old) ||
		!o.NoPolicy && (otherVerdict(&o.Host, &old.Host, svc) || otherWeights(&o.Host, &old.Host, behind) || otherHostEndpoints(&o.Host, &old.Host, svc, behind)) ||
		svc.ID.APIServer() && !maps.Equal(o.Host.Failing, old.Host.Failing) ||
		len(svc.ExternalIPs) > 0 && !o.ExternalIPs.equal(old.ExternalIPs) ||
		hasNodePorts(svc.Ports) && !slices.Equal(o.Host.NodePorts, old.Host.NodePorts) ||
		len(svc.SourceRanges) > 0 && !sameOwnAddresses(&o.Host, &old.Host) ||
		!o.NoBinding && (otherHolder(&o.Host, &old.Host, svc) || hasExternal(svc) && o.External != old.External)
}

// affectsAll reports whether something changed that every plan depends on.
func (o *Options) affectsAll(old Options) bool {
	return o.Node != old.Node || o.NoBinding != old.NoBinding || o.NoPolicy != old.NoPolicy || o.Zone != old.Zone || o.Scheduler != old.Scheduler ||
		o.IPv4 != old.IPv4 || o.IPv6 != old.IPv6 || !slices.Equal(o.Relayed, old.Relayed)
}

func (e ExternalIPs) equal(o ExternalIPs) bool {
	return e.Off == o.Off && slices.Equal(e.Allowed, o.Allowed)
}

// sameOwnAddresses reports whether ownAddresses is equal for both hosts.
func sameOwnAddresses(a, b *model.Host) bool {
	if len(a.Node.Addresses) == 0 && len(b.Node.Addresses) == 0 {
		return maps.Equal(a.Links, b.Links)
	}
	return slices.Equal(a.Node.Addresses, b.Node.Addresses)
}

// hasExternal reports whether a Service has addresses that ExternalBinding is about.
func hasExternal(svc *model.Service) bool { return len(svc.ExternalIPs)+len(svc.Ingress) > 0 }

// otherHolder reports whether the owner of one of the Service's addresses changed.
func otherHolder(now, old *model.Host, svc *model.Service) bool {
	differs := func(a netip.Addr) bool { return now.Holder(a) != old.Holder(a) }
	return slices.ContainsFunc(svc.ClusterIPs, differs) || slices.ContainsFunc(svc.ExternalIPs, differs) ||
		slices.ContainsFunc(svc.Ingress, func(in model.Ingress) bool { return differs(in.Addr) })
}

// otherVerdict reports whether kernel support changed for the scheduler or the tunnel that the
// Service asks for.
func otherVerdict(now, old *model.Host, svc *model.Service) bool {
	switch p := svc.Policy; {
	case p == nil:
		return false
	case p.GUE != 0 && now.NoGUE != old.NoGUE:
		return true
	default:
		return now.Refused[p.Scheduler] != old.Refused[p.Scheduler]
	}
}

// otherWeights reports whether the Node of an endpoint now gives it another weight.
func otherWeights(now, old *model.Host, behind []*model.Slice) bool {
	if maps.Equal(now.Weights, old.Weights) {
		return false
	}
	return slices.ContainsFunc(behind, func(s *model.Slice) bool {
		return slices.ContainsFunc(s.Endpoints, func(e model.Endpoint) bool {
			w, says := now.Weights[e.Node]
			before, said := old.Weights[e.Node]
			return says != said || w != before // weight 0 is not nothing
		})
	})
}
