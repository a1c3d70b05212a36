package ipvs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/sets"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/netfilter"
	"github.com/kube-ipvs/kube-ipvs/internal/delta"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// Successor is the mode of the kube-proxy that carries Services after us.
type Successor string

// The successors. SuccessorNone is for a node that no proxy serves after the cleanup.
const (
	SuccessorNone     Successor = ""
	SuccessorIPVS     Successor = "ipvs"
	SuccessorIPTables Successor = "iptables"
	SuccessorNFTables Successor = "nftables"
	// SuccessorOurs is iptables mode of this agent. Who hands over to it knows that it
	// carries every family: where no Service has an endpoint its rules do not show that.
	SuccessorOurs Successor = "iptables mode of this agent"
)

// ParseSuccessor reads one as a person writes it.
func ParseSuccessor(text string) (Successor, error) {
	s := Successor(text)
	if !slices.Contains([]Successor{SuccessorNone, SuccessorIPVS, SuccessorIPTables, SuccessorNFTables}, s) {
		return SuccessorNone, fmt.Errorf("%q is no mode of kube-proxy: use ipvs, iptables or nftables", text)
	}
	return s, nil
}

// Ours alone: what kube-proxy has no name for. Its ipvs mode would keep it for ever, as
// it was at the last moment, and so refuse or redirect what it carries itself.
var ourSets = []string{sets.NodePortIPs, sets.Detour, sets.DetourEnd, sets.NoLocal, sets.Hold, sets.DirectIPs, sets.Capture, sets.CaptureIPs}

// HandOver is the mode as a clean-up that leaves to a successor what that uses.
//
// A kube-proxy in ipvs mode takes over what has its names: it is to start after the
// clean-up, and until then everything goes on carrying. One in iptables or nftables mode
// is to start before: its rules come before IPVS, so what is left of ours carries only
// connections that are older.
func (m *Mode) HandOver(to Successor) dataplane.Removable {
	m.successor = to
	return handOver{m}
}

type handOver struct{ *Mode }

// Load reads the kernel and wants what the successor takes over.
func (h handOver) Load(ctx context.Context) error {
	if err := h.findDispatch(ctx); err != nil {
		return err
	}
	if err := h.Mode.Load(ctx); err != nil {
		return err
	}
	switch h.successor {
	case SuccessorIPVS:
		h.keepForIPVS()
	case SuccessorIPTables, SuccessorNFTables:
		return h.checkDispatch()
	}
	return nil
}

// Remove leaves the device to a successor that uses it.
func (h handOver) Remove(ctx context.Context) error {
	if h.successor == SuccessorIPVS {
		return nil
	}
	if err := h.removeJumps(ctx); err != nil {
		return err
	}
	return h.Mode.Remove(ctx)
}

// removeJumps takes away our jumps to chains that are the successor's now: it has its own.
// What is the same in both stays, for one rule cannot be told from the other.
func (h handOver) removeJumps(ctx context.Context) error {
	var batch []rules.JumpChange
	for _, f := range h.theirs {
		for k, j := range jumps.Rows(f, extras{}.has) {
			if netfilter.OfBothModes(netfilter.TargetOf(k)) && !sharedJump(k) {
				c := jumps.JumpChange(delta.Change[netfilter.JumpKey, netfilter.Jump]{Op: delta.Delete, Key: k, Value: j})
				c.Exact = true
				batch = append(batch, c)
			}
		}
	}
	if len(batch) == 0 {
		return nil
	}
	return errors.Join(h.deps.Rules.WriteJumps(ctx, batch)...)
}

// sharedJump reports whether kube-proxy's iptables mode has the same jump. It has all but
// those to KUBE-PROXY-FIREWALL: its own jumps there match new connections only.
func sharedJump(k netfilter.JumpKey) bool { return k.Target != chainFirewall }

// findDispatch looks for which families the successor has written its rules. Chains that
// iptables mode has, too, are its own there.
func (h handOver) findDispatch(ctx context.Context) error {
	h.theirs, h.carried = nil, nil
	switch h.successor {
	case SuccessorOurs:
		for _, f := range h.config.Families {
			h.theirs, h.carried = append(h.theirs, netfilter.Nat(f, chainServices).Family), append(h.carried, f)
		}
	case SuccessorIPTables:
		chains, _, err := netfilter.List(ctx, h.deps.Rules)
		if err != nil {
			return fmt.Errorf("read rules: %w", err)
		}
		for _, f := range h.config.Families {
			if k := netfilter.Nat(f, chainServices); dispatchesForOthers(k, chains[k]) {
				h.theirs, h.carried = append(h.theirs, k.Family), append(h.carried, f)
			}
		}
	case SuccessorNFTables:
		found, err := netfilter.ProxyTableStore{Tables: h.deps.Tables}.List(ctx)
		if err != nil {
			return fmt.Errorf("read nftables: %w", err)
		}
		for _, f := range h.config.Families {
			if _, there := found[netfilter.ProxyTable(f)]; there {
				h.carried = append(h.carried, f)
			}
		}
	}
	return nil
}

// checkDispatch fails where clean-up would leave Services with nobody.
func (h handOver) checkDispatch() error {
	for k := range h.servers.Actual() {
		if f := model.FamilyOf(k.Addr); !slices.Contains(h.carried, f) {
			return fmt.Errorf("no kube-proxy in %s mode serves over %s on this node yet: start it first, or run cleanup without --for", h.successor, f)
		}
	}
	return nil
}

// keepForIPVS wants all that is there, but for what is ours alone.
func (h handOver) keepForIPVS() {
	keep(h.servers.Table)
	// One that kube-proxy finds keeps its method, and none of its addresses is detached.
	for k, d := range maps.Collect(h.destinations.Actual()) {
		d.Forward, d.Tunnel, d.TunnelPort, d.TunnelFlags = vserver.ForwardMasq, vserver.TunnelIPIP, 0, 0
		h.destinations.SetDesired(k, d)
	}
	keep(h.addresses.Addresses)
	h.addresses.BindRouted(h.servers.Actual(), func(a netip.Addr) bool { return h.sets.Members.Known(sets.Marker(a)) })
	for k := range maps.Collect(h.sets.Sets.Actual()) {
		if !slices.Contains(ourSets, h.sets.Purpose(k)) {
			h.sets.Sets.SetDesired(k, h.sets.Set(k))
		}
	}
	for k := range maps.Collect(h.sets.Members.Actual()) {
		if !slices.Contains(ourSets, h.sets.Purpose(k.Set)) {
			h.sets.Members.SetDesired(k, struct{}{})
		}
	}
	for k, c := range maps.Collect(h.chains.Actual()) {
		if !netfilter.UnknownToProxy(k) && !netfilter.OnlyIPTables(k) {
			h.chains.SetDesired(k, handedOver(k, c))
		}
	}
	for k, j := range maps.Collect(h.jumps.Actual()) {
		if !netfilter.UnknownToProxy(netfilter.TargetOf(k)) {
			h.jumps.SetDesired(k, j)
		}
	}
}

// keep wants what is there.
func keep[K comparable, V any](t *delta.Table[K, V]) {
	for k, v := range maps.Collect(t.Actual()) {
		t.SetDesired(k, v)
	}
}

// handedOver leaves out the rules that name what is ours alone. NodePorts are on any
// address of the node then, as they are in kube-proxy.
func handedOver(k netfilter.ChainKey, c netfilter.Chain) netfilter.Chain {
	var kept []netfilter.Line
	for line := range c.Lines() {
		switch r := line.Rule(k.Family); {
		case r.JumpsTo() == chainNodePort && slices.Contains(r.Sets(), sets.Name(k.Family, sets.NodePortIPs)):
			kept = append(kept, netfilter.NewLine(k.Family, netfilter.If(netfilter.Local(netfilter.Dst)).Then(netfilter.JumpTo(chainNodePort))))
		case !oursAlone(k, r):
			kept = append(kept, line)
		}
	}
	return netfilter.ChainOf(kept)
}

// oursAlone reports whether a rule of a chain leads to a chain, or matches a set, that
// kube-proxy has no name for.
func oursAlone(k netfilter.ChainKey, r netfilter.Rule) bool {
	if netfilter.UnknownToProxy(netfilter.ChainKey{Family: k.Family, Table: k.Table, Name: r.JumpsTo()}) {
		return true
	}
	return slices.ContainsFunc(ourSets, func(s string) bool { return slices.Contains(r.Sets(), sets.Name(k.Family, s)) })
}

// ownedChain is netfilter.Owned, less what is left to a successor.
func (m *Mode) ownedChain(k netfilter.ChainKey) bool {
	left := slices.Contains(m.theirs, k.Family) && (netfilter.OnlyIPTables(k) || netfilter.OfBothModes(k))
	return netfilter.Owned(k) && !left
}
