package source

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// Node reads what we use of a v1 Node. It never fails: a field that cannot be used is
// left out and named in Problems.
func Node(in *corev1.Node) model.Node {
	var p problems
	out := model.Node{Name: in.Name}
	if p.checkMeta(&in.ObjectMeta, false, maxSubdomain) {
		out.Zone = in.Labels[corev1.LabelTopologyZone]
		out.PodCIDRs = p.podCIDRs(&in.Spec)
		out.Addresses = p.nodeAddresses(in.Status.Addresses)
		asked := annotations{of: in.Annotations}
		out.Weight = asked.onlyWeight("a Node", "that of the EndpointSlice or Service is used")
		out.BadAnnotations = asked.done()
		out.Leaving = in.DeletionTimestamp != nil || slices.ContainsFunc(in.Spec.Taints, leaves)
	}
	out.Problems = p.done()
	return out
}

// toBeDeleted is the key of the taint, with any effect, that the cluster autoscaler gives a
// Node whose machine it will remove. kube-proxy's /healthz fails on it (KEP-3836).
const toBeDeleted = "ToBeDeletedByClusterAutoscaler"

func leaves(t corev1.Taint) bool { return t.Key == toBeDeleted }

// podCIDRs reads spec.podCIDRs, or spec.podCIDR where the list is empty.
func (p *problems) podCIDRs(spec *corev1.NodeSpec) (out []netip.Prefix) {
	if len(spec.PodCIDRs) == 0 {
		if spec.PodCIDR == "" {
			return nil
		}
		return p.podCIDR("spec.podCIDR", spec.PodCIDR, nil)
	}
	for i, s := range spec.PodCIDRs {
		out = p.podCIDR(at("spec.podCIDRs", i), s, out)
	}
	return out
}

func (p *problems) podCIDR(field, s string, have []netip.Prefix) []netip.Prefix {
	pfx, ok := p.prefix(field, s)
	if !ok {
		return have
	}
	family := model.FamilyOf(pfx.Addr())
	same := func(h netip.Prefix) bool { return model.FamilyOf(h.Addr()) == family }
	if i := slices.IndexFunc(have, same); i >= 0 {
		p.add(field, "%s is a second %s network, only %s is used", pfx, family, have[i])
		return have
	}
	return append(have, pfx)
}

// nodeAddresses lists the InternalIPs, then the ExternalIPs; names are no addresses and are ignored
// silently.
func (p *problems) nodeAddresses(in []corev1.NodeAddress) (out []netip.Addr) {
	for _, kind := range []corev1.NodeAddressType{corev1.NodeInternalIP, corev1.NodeExternalIP} {
		for i, na := range in {
			if na.Type != kind {
				continue
			}
			a, ok := p.addr(at("status.addresses", i)+".address", na.Address, anyAddr)
			if ok && !slices.Contains(out, a) {
				out = append(out, a)
			}
		}
	}
	return out
}
