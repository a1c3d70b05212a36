package plan

import (
	"net/netip"
	"slices"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// bindRelays marks the groups whose node ports are relayed on loopback addresses: the policy for
// clients from outside holds there, too.
func (b *binder) bindRelays() {
	for i, p := range b.ports {
		for _, a := range b.opts.Relayed {
			if f := model.FamilyOf(a); p.NodePort != 0 && b.family(f).served() {
				b.group(i, f).external = true
			}
		}
	}
}

// relays returns the node ports on loopback addresses, sorted by key. The Service has a number of
// frontends, and with them these count as what one Service may have.
func (j *compilation) relays(frontends int) (out []model.Relay) {
	for _, addr := range j.opts.Relayed {
		f := model.FamilyOf(addr)
		if !j.family(f).served() {
			continue
		}
		for i, p := range j.ports {
			key := model.FrontendKey{Addr: addr, Port: p.NodePort, Protocol: p.Protocol}
			switch {
			case p.NodePort == 0:
			case p.Protocol == model.SCTP:
				j.notes.addf(model.NotRelayed, "node port %d/%s is not served on loopback: only TCP and UDP are relayed", p.NodePort, p.Protocol)
			case slices.ContainsFunc(out, func(r model.Relay) bool { return r.Key == key }):
				j.notes.addf(model.NodePortTwice, "node port %d/%s is listed twice: port %q is not served there", p.NodePort, p.Protocol, p.Name)
			case frontends+len(out) >= j.most:
				j.beyond.Frontends++
			default:
				out = append(out, model.Relay{Key: key, Targets: j.relayTargets(i, f), Affinity: j.svc.Affinity})
			}
		}
	}
	slices.SortFunc(out, func(a, b model.Relay) int { return a.Key.Compare(b.Key) })
	return out
}

// relayTargets returns where connections to a node port on loopback go. At the cluster IP they get
// what a virtual server has: its scheduler, its affinity, its drains. A policy Local excludes that:
// internalTrafficPolicy withholds endpoints from the cluster IP, and externalTrafficPolicy admits
// only those of this node, as in kube-proxy (KEP-6032).
func (j *compilation) relayTargets(port int, f model.Family) (out []netip.AddrPort) {
	for _, b := range j.decided(port, f).list(j.svc.ExternalLocal) {
		if b.Weight > 0 {
			out = append(out, b.Addr)
		}
	}
	if len(out) > 0 && !j.svc.ExternalLocal && !j.svc.InternalLocal {
		return []netip.AddrPort{netip.AddrPortFrom(j.family(f).clusterIP, j.ports[port].Port)}
	}
	return out
}
