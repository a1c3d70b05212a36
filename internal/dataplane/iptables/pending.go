package iptables

import (
	"slices"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/netfilter"
	"github.com/kube-ipvs/kube-ipvs/internal/delta"
)

// Pending implements dataplane.Explainer.
func (x *explainer) Pending(most int) []dataplane.PendingTable {
	all := []dataplane.PendingTable{
		dataplane.ListPending("chains", x.tables.chains.Tracker, most, netfilter.ChainCommand),
		dataplane.ListPending("entries", x.tables.entries.Tracker, most, func(c delta.Change[entry, struct{}]) string {
			return netfilter.LineCommand(c.Op, c.Key.chain, c.Key.rule)
		}),
		dataplane.ListPending("jumps", x.tables.jumps.Tracker, most, netfilter.JumpCommand),
		dataplane.ListPending("nftables", x.tables.nftables.Tracker, most, netfilter.ProxyTableCommand),
		x.announced.Pending(most),
	}
	return slices.DeleteFunc(all, func(t dataplane.PendingTable) bool { return len(t.Rows) == 0 && t.More == 0 })
}
