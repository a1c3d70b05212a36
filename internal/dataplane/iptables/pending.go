package iptables

import (
	"slices"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/netfilter"
	"github.com/kube-ipvs/kube-ipvs/internal/delta"
)

// Pending implements dataplane.Explainer.
func (m *Mode) Pending(most int) []dataplane.PendingTable {
	all := []dataplane.PendingTable{
		dataplane.ListPending("chains", m.chains.Tracker, most, netfilter.ChainCommand),
		dataplane.ListPending("entries", m.entries.Tracker, most, func(c delta.Change[entry, struct{}]) string {
			return netfilter.LineCommand(c.Op, c.Key.chain, c.Key.rule)
		}),
		dataplane.ListPending("jumps", m.jumps.Tracker, most, netfilter.JumpCommand),
		dataplane.ListPending("nftables", m.tables.Tracker, most, netfilter.ProxyTableCommand),
	}
	return slices.DeleteFunc(all, func(t dataplane.PendingTable) bool { return len(t.Rows) == 0 && t.More == 0 })
}
