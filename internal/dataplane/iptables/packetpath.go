package iptables

import (
	"fmt"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// This file describes in words the path of a packet through the rules that servicechains.go makes.

// walker is one packet on its way.
type walker struct {
	dataplane.PacketPath
	config Config
	packet dataplane.Packet
	hash   string
	tells  bool // the local detector can tell pods of this node
	marked bool // its source is to be rewritten
	// pool are the backends that are chosen from, and its chain.
	pool  []model.Backend
	chain string
}

// PacketPath implements dataplane.Explainer.
func (x *explainer) PacketPath(p dataplane.Packet) dataplane.PacketPath {
	c := x.config
	w := &walker{config: c, packet: p, hash: hashed(c.nameOf(p.To), p.To.Key.Protocol.String())}
	w.tells = c.Local.Match(model.FamilyOf(p.To.Key.Addr), p.Node) != nil
	for _, step := range []func(){w.dispatch, w.refuse, w.choose, w.postrouting} {
		if step(); w.Ended() {
			break
		}
	}
	return w.PacketPath
}

func (w *walker) hook() string {
	if w.packet.Origin == dataplane.FromHost {
		return "nat OUTPUT"
	}
	return "nat PREROUTING"
}

// dispatch leads to the chains of the Service (servicePort.dispatch).
func (w *walker) dispatch() {
	f := w.packet.To
	if len(f.Backends) == 0 && (!f.NoLocal || !f.Kind.External()) {
		return // there is no rule for it
	}
	chain := w.hook() + " " + chainServices
	switch f.Kind {
	case model.KindClusterIP:
		w.clusterIP(chain)
		return
	case model.KindNodePort:
		w.Addf("%s: %s is local: to %s, port %d: to %s", chain, f.Key.Addr, chainNodePorts, f.Key.Port, prefixExternal+w.hash)
	case model.KindLoadBalancer:
		if len(f.SourceRanges) > 0 && !w.limited(chain) {
			return
		}
		w.Addf("%s: load-balancer address: to %s", chain, prefixExternal+w.hash)
	default:
		w.Addf("%s: external IP: to %s", chain, prefixExternal+w.hash)
	}
	w.external()
}

// limited asks the source ranges (servicePort.limit); a client in none is left untranslated,
// and dropped in the filter table.
func (w *walker) limited(chain string) (passes bool) {
	f, fw := w.packet.To, prefixFirewall+w.hash
	in, known := w.packet.InRanges()
	own := f.OwnNode && w.packet.Origin == dataplane.FromHost
	switch {
	case own, known && in:
		w.Addf("%s: to %s: inside loadBalancerSourceRanges (%s)", chain, fw, w.packet.RangesText())
	case !known && w.packet.Origin != dataplane.FromHost:
		w.Addf("%s: to %s: passes from %s, from elsewhere it is dropped", chain, fw, w.packet.RangesText())
	default:
		w.Stop(dataplane.EndDropped, "filter %s: in none of loadBalancerSourceRanges (%s)", chainFirewall, w.packet.RangesText())
	}
	return !w.Ended()
}

// clusterIP masquerades as masqueradeClusterIP does.
func (w *walker) clusterIP(chain string) {
	f := w.packet.To
	w.pool, w.chain = f.Backends, w.poolChain(f.Local)
	w.marked = w.config.MasqueradeAll || w.tells && w.packet.Origin != dataplane.FromPod
	w.Addf("%s: cluster IP: to %s: %s", chain, w.chain, w.intent())
}

func (w *walker) intent() string {
	if w.marked {
		return fmt.Sprintf("marked %s for masquerade (%s)", w.config.Masquerade.Value(), chainMarkMasq)
	}
	return "source kept"
}

func (w *walker) poolChain(local bool) string {
	if local {
		return prefixLocal + w.hash
	}
	return prefixCluster + w.hash
}

// external decides by which endpoints the packet is served (servicePort.externalChain).
func (w *walker) external() {
	f, ext := w.packet.To, prefixExternal+w.hash
	inside := w.packet.Origin == dataplane.FromHost || w.packet.Origin == dataplane.FromPod && w.tells
	switch {
	case !f.Local:
		w.marked, w.pool, w.chain = true, f.Backends, w.poolChain(false)
		w.Addf("%s: policy Cluster: %s, to %s", ext, w.intent(), w.chain)
	case inside && w.packet.Detour != nil && len(w.packet.Detour.Backends) > 0:
		w.marked = w.packet.Origin == dataplane.FromHost
		w.pool, w.chain = w.packet.Detour.Backends, w.poolChain(false)
		w.Addf("%s: from this node, so all endpoints serve it: %s, to %s", ext, w.intent(), w.chain)
	case len(f.Backends) > 0:
		w.pool, w.chain = f.Backends, w.poolChain(true)
		w.Addf("%s: policy Local: source kept, to %s", ext, w.chain)
	}
}

// refuse is the filter table for what nothing has translated (servicePort.refuse).
func (w *walker) refuse() {
	f := w.packet.To
	if len(w.pool) > 0 {
		return
	}
	chain := "filter " + chainExternal
	if f.Kind == model.KindClusterIP {
		chain = "filter " + chainServices
	}
	if f.NoLocal {
		w.Stop(dataplane.EndDropped, "%s: the policy is Local and no endpoint is on this node", chain)
		return
	}
	if w.packet.Origin == dataplane.FromHost && f.Kind != model.KindClusterIP && f.Kind != model.KindNodePort {
		w.Stop(dataplane.EndDropped, "%s has no endpoints, and the rule that rejects it (%s) is only in INPUT and FORWARD: the packet follows the route to %s untranslated and gets no answer",
			f.Name(), chain, f.Key.Addr)
		return
	}
	w.Stop(dataplane.EndRefused, "%s: %s has no endpoints", chain, f.Name())
}

// choose picks an endpoint at random.
func (w *walker) choose() {
	affinity := ""
	if w.packet.To.Affinity > 0 {
		affinity = fmt.Sprintf(", a returning client keeps its backend for %s", w.packet.To.Affinity)
	}
	taking := dataplane.BackendsText(w.pool)
	if taking == "" {
		w.Stop(dataplane.EndRefused, "%s has no endpoint", w.chain)
		return
	}
	w.Addf("%s: one at random%s, by its %s…: destination becomes one of %s", w.chain, affinity, prefixEndpoint, taking)
}

// postrouting rewrites the source, or leaves it.
func (w *walker) postrouting() {
	w.End = dataplane.EndForwarded
	if w.marked {
		w.Addf("nat POSTROUTING %s: source becomes the node's address", chainPostrouting)
		return
	}
	w.SourceKept = true
	w.Addf("nat POSTROUTING %s: source kept, except for a pod that connects to itself", chainPostrouting)
}
