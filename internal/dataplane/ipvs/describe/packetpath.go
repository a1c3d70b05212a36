package describe

import (
	"fmt"
	"strings"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/chains"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/sets"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/netfilter"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/link"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// This file describes the chains that a packet meets, in the order of doc.go of the mode. Package
// chains decides by nat.go which sources are rewritten and which packets take a detour, and by filter.go
// which are let in. sets/entries.go decides which sets a frontend is in. Each step names the chain, and
// the set by which it applies.

// walker follows one packet.
type walker struct {
	dataplane.PacketPath
	config chains.Config
	// pickedUp is Options.PickedUp.
	pickedUp func(f *model.Frontend) (wanted, on bool)
	packet   dataplane.Packet
	// at is the frontend that the packet is for: another one after a detour.
	at     model.Frontend
	family model.Family
	marked bool // its source is to be rewritten
	taken  bool // by a detour
}

// PacketPath implements dataplane.Explainer.
func (d *Describer) PacketPath(p dataplane.Packet) dataplane.PacketPath {
	w := &walker{config: d.of.Config, pickedUp: d.of.PickedUp, packet: p, at: p.To, family: model.FamilyOf(p.To.Key.Addr)}
	way := []func(){w.direct, w.nat, w.input, w.balance, w.postrouting}
	if p.Origin == dataplane.FromHost {
		way = []func(){w.output, w.nat, w.balance, w.postrouting}
	}
	for _, step := range way {
		if step(); w.Ended() {
			break
		}
	}
	return w.PacketPath
}

func (w *walker) set(name string) string { return sets.Name(w.family, name) }

// host reports whether this machine itself is the client.
func (w *walker) host() bool { return w.packet.Origin == dataplane.FromHost }

// direct is the mark by which a detached address is local (directRules, captureRules).
func (w *walker) direct() {
	if w.at.Capture && !sets.Captures(&w.at) {
		w.Stop(dataplane.EndRefused, "filter FORWARD %s: %s is captured, and has no endpoint", netfilter.ChainCapture, w.at.Key)
		return
	}
	if w.at.Capture {
		w.Addf("mangle PREROUTING %s: %s is in %s, mark %#x makes packets to this port local", netfilter.ChainCapture, w.at.Key,
			w.set(sets.Capture), link.DetachMark(w.config.Masquerade.Bit))
	}
	if w.at.Forward != model.ForwardNAT && w.at.Bind {
		w.Addf("mangle PREROUTING %s: %s is in %s, mark %#x makes the detached address local", netfilter.ChainDirect, w.at.Key.Addr,
			w.set(sets.DirectIPs), link.DetachMark(w.config.Masquerade.Bit))
	}
}

// output is the path of the host's own packets before IPVS takes them (outputRules).
func (w *walker) output() {
	f := w.at
	chain := "mangle OUTPUT " + netfilter.ChainOutFilter
	switch in, known := w.packet.InRanges(); {
	case len(f.SourceRanges) == 0:
	case f.Bind && !f.OwnNode:
		w.Stop(dataplane.EndDropped, "%s: the host dials %s from that very address, and no range of loadBalancerSourceRanges (%s) holds this node",
			chain, f.Key.Addr, w.packet.RangesText())
	case f.OwnNode && (f.Bind || !known):
		w.Addf("%s: this node is inside loadBalancerSourceRanges (%s, %s): passes", chain, w.set(sets.SourceCIDR), w.set(sets.SourceIP))
	case known && !in:
		w.Stop(dataplane.EndDropped, "%s: %s is in none of loadBalancerSourceRanges (%s)", chain, w.packet.Source, w.packet.RangesText())
	case known:
		w.Addf("%s: %s is inside loadBalancerSourceRanges (%s): passes", chain, w.packet.Source, w.set(sets.SourceCIDR))
	default:
		w.Stop(dataplane.EndDropped, "%s: no address of this node is in loadBalancerSourceRanges (%s)", chain, w.packet.RangesText())
	}
	switch {
	case w.Ended():
	case f.Kind == model.KindDetour:
		w.Stop(dataplane.EndDropped, "%s: %s is in %s, the addresses for redirected packets only", chain, f.Key, w.set(sets.DetourEnd))
	case f.NoLocal && f.Kind == model.KindClusterIP:
		w.Stop(dataplane.EndDropped, "%s: %s is in %s: internalTrafficPolicy is Local and no endpoint is on this node", chain, f.Key, w.set(sets.NoLocal))
	}
}

// nat is KUBE-SERVICES of the nat table (natRules): a detour, then masquerading by kind.
func (w *walker) nat() {
	hook := "nat PREROUTING"
	if w.host() {
		hook = "nat OUTPUT"
	}
	chain := hook + " " + netfilter.ChainServices
	if w.detour(chain) {
		return
	}
	f := w.at
	switch f.Kind {
	case model.KindClusterIP:
		w.clusterIP(chain)
	case model.KindLoadBalancer:
		w.external(chain, sets.LoadBalancer, sets.LoadBalancerLocal, sets.KeepsClient(&f))
	case model.KindExternalIP:
		w.external(chain, sets.ExternalIP, sets.ExternalIPLocal, sets.KeepsClient(&f))
	case model.KindNodePort:
		names := sets.NodePorts[f.Key.Protocol]
		w.Addf("%s: %s is in %s: to %s", chain, f.Key.Addr, w.set(sets.NodePortIPs), netfilter.ChainNodePort)
		w.external("nat "+netfilter.ChainNodePort, names[0], names[1], f.Local)
	}
}

// detour takes clients of this node to another frontend (detourRules).
func (w *walker) detour(chain string) (taken bool) {
	f := w.at
	if !f.Detour.IsValid() || !f.NoLocal && len(f.Backends) == 0 {
		return false
	}
	if w.packet.Detour == nil {
		return false
	}
	tells := w.config.Local.Match(w.family, w.packet.Node) != nil
	switch in, known := w.packet.InRanges(); {
	case !w.host() && known && !in:
		return false
	case w.packet.Origin == dataplane.FromOutside, w.packet.Origin == dataplane.FromPod && !tells:
		return false
	}
	to := netfilter.ChainDetourTo
	if f.Key.Protocol == model.SCTP {
		to = netfilter.ChainDetourSCTP
	}
	w.marked = w.host()
	if in, known := w.packet.InRanges(); !in && !known && !w.host() {
		w.Addf("nat %s: packets from outside loadBalancerSourceRanges (%s) continue to the rule that drops them", netfilter.ChainDetour, w.packet.RangesText())
	}
	w.Addf("%s: in %s, from this node: %s, %s takes it to %s, which has all endpoints%s", chain, w.set(sets.Detour), netfilter.ChainDetour, to, f.Detour,
		cond(w.marked, ", and the packet is marked for masquerade", ""))
	w.at, w.taken = *w.packet.Detour, true
	return true
}

// clusterIP marks who has to come from the node's address (masqueradeClusterIP, masqueradeOwn).
func (w *walker) clusterIP(chain string) {
	var why string
	tells := w.config.Local.Match(w.family, w.packet.Node) != nil
	switch {
	case w.config.MasqueradeAll:
		w.marked, why = true, "all clients are masqueraded (masqueradeAll)"
	case tells && w.packet.Origin != dataplane.FromPod:
		w.marked, why = true, "it does not come from a pod of this node"
	case tells:
		why = "it comes from a pod of this node"
	case w.host():
		w.marked, why = true, "the host sends it from a cluster IP"
	default:
		why = "without --cluster-cidr traffic of local pods is not recognized"
	}
	w.Addf("%s: in %s; %s: %s", chain, w.set(sets.ClusterIP), why, w.intent())
}

// external marks by the set that a kind has for policy Cluster, and not by the one for Local.
func (w *walker) external(chain, cluster, local string, keeps bool) {
	if keeps {
		w.Addf("%s: in %s: %s", chain, w.set(local), w.intent())
		return
	}
	w.marked = true
	w.Addf("%s: in %s: %s", chain, w.set(cluster), w.intent())
}

func (w *walker) intent() string {
	return cond(w.marked, fmt.Sprintf("marked %s for masquerade (%s)", w.config.Masquerade.Value(), netfilter.ChainMarkMasq), "source kept")
}

// OthersThenAccept is the step of a packet that our rules let pass in the INPUT of iptables, where their
// accept keeps later rules of others from dropping it.
const OthersThenAccept = "filter INPUT: rules of others, then " + netfilter.ChainAccept + " accepts"

// input is how the packet becomes local, and the filter table (accessRules, filterRules).
func (w *walker) input() {
	f := w.at
	switch {
	case f.Bind:
		w.Addf("routing: %s is local (kube-ipvs0, or a local route of its range)", f.Key.Addr)
	case f.Kind == model.KindNodePort:
		w.Addf("routing: %s is an address of this node", f.Key.Addr)
	case f.Capture:
		w.Addf("routing: %s is not bound; marked packets are local (table %d)", f.Key.Addr, link.DetachedTable)
	default:
		w.Addf("routing: %s is on a link of this machine", f.Key.Addr)
	}
	if w.taken {
		w.Addf("filter INPUT %s: redirected (ctstate DNAT): passes", netfilter.ChainFilter)
	} else {
		w.filter()
	}
	if !w.Ended() {
		w.Addf("%s", OthersThenAccept)
	}
}

func (w *walker) filter() {
	f := w.at
	chain := "filter INPUT " + netfilter.ChainFilter
	switch {
	case f.NoLocal:
		w.Stop(dataplane.EndDropped, "%s: %s is in %s: %s is Local and no endpoint is on this node", chain, f.Key, w.set(sets.NoLocal), policyOf(f.Kind))
		return
	case f.Kind == model.KindDetour:
		w.Stop(dataplane.EndRefused, "%s: %s is for redirected packets only", chain, f.Key)
		return
	case f.Kind == model.KindNodePort:
		w.Addf("%s: %s is an address of this node: passes", chain, f.Key.Addr)
	default:
		w.Addf("%s: in %s: passes", chain, w.set(w.kindSet()))
	}
	if len(f.SourceRanges) == 0 {
		return
	}
	chain = "filter INPUT " + netfilter.ChainFirewall + " " + netfilter.ChainSourceRanges
	switch in, known := w.packet.InRanges(); {
	case !known:
		w.Addf("%s: in %s: passes from %s (%s), from elsewhere it is dropped", chain, w.set(sets.LoadBalancerFW), w.packet.RangesText(), w.set(sets.SourceCIDR))
	case in:
		w.Addf("%s: %s is inside loadBalancerSourceRanges (%s): passes", chain, w.packet.Source, w.set(sets.SourceCIDR))
	default:
		w.Stop(dataplane.EndDropped, "%s: %s is in none of loadBalancerSourceRanges (%s)", chain, w.packet.Source, w.packet.RangesText())
	}
}

// kindSet is the set by which KUBE-IPVS-FILTER lets a kind pass.
func (w *walker) kindSet() string {
	switch w.at.Kind {
	case model.KindLoadBalancer:
		return sets.LoadBalancer
	case model.KindExternalIP:
		return cond(sets.KeepsClient(&w.at), sets.ExternalIPLocal, sets.ExternalIP)
	}
	return sets.ClusterIP
}

func policyOf(k model.Kind) string {
	return cond(k.External(), "externalTrafficPolicy", "internalTrafficPolicy")
}

// balance is IPVS.
func (w *walker) balance() {
	f := w.at
	hook := cond(w.host(), "LOCAL_OUT", "LOCAL_IN")
	taking := dataplane.BackendsText(f.Backends)
	switch {
	case taking != "":
	case len(f.Backends) > 0:
		w.Stop(dataplane.EndRefused, "IPVS %s: virtual server %s has only backends of weight 0", hook, f.Key)
	default:
		w.Stop(dataplane.EndRefused, "IPVS %s: virtual server %s has no destination", hook, f.Key)
	}
	if w.Ended() {
		return
	}
	affinity := ""
	if f.Affinity > 0 {
		affinity = fmt.Sprintf(", a returning client keeps its backend for %s", f.Affinity)
	}
	w.Addf("IPVS %s: virtual server %s, scheduler %s%s: one of %s", hook, f.Key, f.Scheduler, affinity, taking)
	w.pickup(hook)
}

// pickup is what becomes of a connection that began on another node.
func (w *walker) pickup(hook string) {
	f := w.at
	wanted, on := w.pickedUp(&f)
	key := "net.ipv4.vs.sloppy_" + f.Key.Protocol.String()
	switch {
	case !wanted:
	case !on:
		w.Addf("IPVS %s: a connection that began on another node is reset: %s could not be set", hook, key)
	case f.Local:
		w.Addf("IPVS %s: a connection that began on another node is picked up, but externalTrafficPolicy Local gives each node other backends", hook)
	case f.Affinity > 0 && strings.Contains(f.Scheduler.String(), "mh-port"):
		w.Addf("IPVS %s: a connection that began on another node is picked up, but sessionAffinity with mh-port gives each node other backends", hook)
	default:
		w.Addf("IPVS %s: a connection that began on another node is picked up, with the backend that it had", hook)
	}
}

// postrouting rewrites the source, or leaves it.
func (w *walker) postrouting() {
	w.End = dataplane.EndForwarded
	f := w.at
	switch {
	case f.Forward != model.ForwardNAT:
		w.SourceKept = !w.marked
		how := f.Forward.String()
		if f.GUE != 0 {
			how += fmt.Sprintf(" by GUE, UDP port %d", f.GUE)
		}
		w.Addf("forwarded unchanged (%s): the backend has %s itself and answers the client", how, f.Key.Addr)
	case w.marked:
		w.Addf("nat POSTROUTING %s: source becomes the node's address", netfilter.ChainPostrouting)
	default:
		w.SourceKept = true
		w.Addf("nat POSTROUTING %s: source kept, except for a pod that connects to itself (%s)", netfilter.ChainPostrouting, w.set(sets.LoopBack))
	}
}
