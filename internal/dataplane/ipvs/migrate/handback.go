package migrate

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/addresses"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/chains"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/destinations"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/servers"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/sets"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/netfilter"
	"github.com/kube-ipvs/kube-ipvs/internal/delta"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nftables"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// Target is the mode of the kube-proxy that carries Services after us.
type Target string

// The targets. TargetNone is the clean-up of a node that is to carry no Service.
const (
	TargetNone     Target = ""
	TargetIPVS     Target = "ipvs"
	TargetIPTables Target = "iptables"
	TargetNFTables Target = "nftables"
	// TargetOurs is iptables mode of this agent, which carries every family. Its rules do not show
	// that where no Service has an endpoint.
	TargetOurs Target = "iptables mode of this agent"
)

// ParseTarget reads a target as an operator writes it.
func ParseTarget(text string) (Target, error) {
	t := Target(text)
	if !slices.Contains([]Target{TargetNone, TargetIPVS, TargetIPTables, TargetNFTables}, t) {
		return TargetNone, fmt.Errorf("%q is no mode of kube-proxy: use ipvs, iptables or nftables", text)
	}
	return t, nil
}

// ourSets are those for which kube-proxy has no name. Its ipvs mode would keep them for ever as they
// were at the last moment, and so refuse or redirect packets that it carries itself.
var ourSets = []string{sets.NodePortIPs, sets.Detour, sets.DetourEnd, sets.NoLocal, sets.Hold, sets.DirectIPs, sets.Capture, sets.CaptureIPs}

// Rows are the managers whose rows a target may keep.
type Rows struct {
	Sets         *sets.Manager
	Chains       *chains.Manager
	Servers      *servers.Manager
	Destinations *destinations.Manager
	Addresses    *addresses.Manager
}

// Handoff leaves to a target the rows that it uses.
//
// A kube-proxy in ipvs mode takes over rows that have its names: it must start after the cleanup,
// and until then everything keeps forwarding. One in iptables or nftables mode is to start before:
// its rules come before IPVS, so the rows that are left of ours carry older connections only.
type Handoff struct {
	families []model.Family
	kernel   chains.Kernel
	tables   netfilter.NFTables
	rows     Rows

	target  Target
	theirs  []model.Family // in which rules of iptables mode are the target's
	carried []model.Family // those that the target carries
}

// NewHandoff returns a handoff to no target.
func NewHandoff(families []model.Family, kernel chains.Kernel, tables netfilter.NFTables, rows Rows) *Handoff {
	return &Handoff{families: families, kernel: kernel, tables: tables, rows: rows}
}

// To returns a mode as a clean-up for a target.
func (h *Handoff) To(target Target, mode dataplane.Removable) dataplane.Removable {
	h.target = target
	return handingOff{mode, h}
}

// OwnsChain reports whether a chain is ours and not left to the target.
func (h *Handoff) OwnsChain(k netfilter.ChainKey) bool {
	left := slices.Contains(h.theirs, k.Family) && (netfilter.OnlyIPTables(k) || netfilter.OfBothModes(k))
	return netfilter.Owned(k) && !left
}

// OwnsTable reports whether a table is kube-proxy's, of a family that is served here, and not left to
// the target.
func (h *Handoff) OwnsTable(k nftables.Key) bool {
	return netfilter.IsProxyTable(k, h.families) && h.target != TargetNFTables
}

// LeavesAnnounced reports whether the target announces addresses itself, by the same routes.
func (h *Handoff) LeavesAnnounced() bool { return h.target == TargetOurs }

// handingOff is a mode that leaves rows to a target.
type handingOff struct {
	dataplane.Removable
	handoff *Handoff
}

// Load reads the kernel and wants the rows that the target takes over.
func (o handingOff) Load(ctx context.Context) error {
	h := o.handoff
	if err := h.findDispatch(ctx); err != nil {
		return err
	}
	if err := o.Removable.Load(ctx); err != nil {
		return err
	}
	switch h.target {
	case TargetIPVS:
		h.keepForIPVS()
	case TargetIPTables, TargetNFTables:
		return h.checkDispatch()
	}
	return nil
}

// Remove leaves the device to a target that uses it.
func (o handingOff) Remove(ctx context.Context) error {
	if o.handoff.target == TargetIPVS {
		return nil
	}
	if err := o.handoff.removeJumps(ctx); err != nil {
		return err
	}
	return o.Removable.Remove(ctx)
}

// removeJumps deletes our jumps to chains that are the target's now: it has its own. A jump that
// both have stays, because both look the same.
func (h *Handoff) removeJumps(ctx context.Context) error {
	var batch []rules.JumpChange
	for _, f := range h.theirs {
		for k, j := range chains.Jumps.Rows(f, chains.Extras{}.Has) {
			if netfilter.OfBothModes(netfilter.TargetOf(k)) && !sharedJump(k) {
				c := chains.Jumps.JumpChange(delta.Change[netfilter.JumpKey, netfilter.Jump]{Op: delta.Delete, Key: k, Value: j})
				c.Exact = true
				batch = append(batch, c)
			}
		}
	}
	if len(batch) == 0 {
		return nil
	}
	return errors.Join(h.kernel.WriteJumps(ctx, batch)...)
}

// sharedJump reports whether kube-proxy's iptables mode has the same jump. It has all but
// those to KUBE-PROXY-FIREWALL: its own jumps there match new connections only.
func sharedJump(k netfilter.JumpKey) bool { return k.Target != netfilter.ChainFirewall }

// findDispatch finds the families for which the target has written its rules. Chains that both modes
// have are its own there.
func (h *Handoff) findDispatch(ctx context.Context) error {
	h.theirs, h.carried = nil, nil
	switch h.target {
	case TargetOurs:
		for _, f := range h.families {
			h.theirs, h.carried = append(h.theirs, f), append(h.carried, f)
		}
	case TargetIPTables:
		there, _, err := netfilter.List(ctx, h.kernel)
		if err != nil {
			return fmt.Errorf("read rules: %w", err)
		}
		for _, f := range h.families {
			if k := netfilter.Nat(f, netfilter.ChainServices); dispatchesForOthers(k, there[k]) {
				h.theirs, h.carried = append(h.theirs, f), append(h.carried, f)
			}
		}
	case TargetNFTables:
		found, err := netfilter.ProxyTableStore{Tables: h.tables}.List(ctx)
		if err != nil {
			return fmt.Errorf("read nftables: %w", err)
		}
		for _, f := range h.families {
			if _, there := found[netfilter.ProxyTable(f)]; there {
				h.carried = append(h.carried, f)
			}
		}
	}
	return nil
}

// checkDispatch fails if a clean-up would leave Services of a family without a proxy.
func (h *Handoff) checkDispatch() error {
	for k := range h.rows.Servers.Actual() {
		if f := model.FamilyOf(k.Addr); !slices.Contains(h.carried, f) {
			return fmt.Errorf("no kube-proxy in %s mode serves over %s on this node yet: start it first, or run cleanup without --for", h.target, f)
		}
	}
	return nil
}

// keepForIPVS wants all rows in place, but for those that are ours alone.
func (h *Handoff) keepForIPVS() {
	keep(h.rows.Servers.Table)
	// kube-proxy keeps the forwarding method of a destination that it finds, and detaches no address.
	for k, d := range maps.Collect(h.rows.Destinations.Actual()) {
		d.Forward, d.Tunnel, d.TunnelPort, d.TunnelFlags = vserver.ForwardMasq, vserver.TunnelIPIP, 0, 0
		h.rows.Destinations.SetDesired(k, d)
	}
	keep(h.rows.Addresses.Addresses)
	h.rows.Addresses.BindRouted(h.rows.Servers.Actual(), func(a netip.Addr) bool { return h.rows.Sets.Members.Known(sets.Marker(a)) })
	for k := range maps.Collect(h.rows.Sets.Sets.Actual()) {
		if !slices.Contains(ourSets, h.rows.Sets.Purpose(k)) {
			h.rows.Sets.Sets.SetDesired(k, h.rows.Sets.Set(k))
		}
	}
	for k := range maps.Collect(h.rows.Sets.Members.Actual()) {
		if !slices.Contains(ourSets, h.rows.Sets.Purpose(k.Set)) {
			h.rows.Sets.Members.SetDesired(k, struct{}{})
		}
	}
	for k, c := range maps.Collect(h.rows.Chains.Chains.Actual()) {
		if !netfilter.UnknownToProxy(k) && !netfilter.OnlyIPTables(k) {
			h.rows.Chains.Chains.SetDesired(k, handedOver(k, c))
		}
	}
	for k, j := range maps.Collect(h.rows.Chains.Jumps.Actual()) {
		if !netfilter.UnknownToProxy(netfilter.TargetOf(k)) {
			h.rows.Chains.Jumps.SetDesired(k, j)
		}
	}
}

// keep marks all rows in place as desired.
func keep[K comparable, V any](t *delta.Table[K, V]) {
	for k, v := range maps.Collect(t.Actual()) {
		t.SetDesired(k, v)
	}
}

// handedOver leaves out the rules that name chains or sets of ours alone. NodePorts are on any address
// of the node then, as they are in kube-proxy.
func handedOver(k netfilter.ChainKey, c netfilter.Chain) netfilter.Chain {
	var kept []netfilter.Line
	for line := range c.Lines() {
		switch r := line.Rule(k.Family); {
		case r.JumpsTo() == netfilter.ChainNodePort && slices.Contains(r.Sets(), sets.Name(k.Family, sets.NodePortIPs)):
			kept = append(kept, netfilter.NewLine(k.Family, netfilter.If(netfilter.Local(netfilter.Dst)).Then(netfilter.JumpTo(netfilter.ChainNodePort))))
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
