package iptables

import (
	"slices"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/delta"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
)

// Pending implements dataplane.Explainer.
func (m *Mode) Pending(most int) []dataplane.PendingTable {
	all := []dataplane.PendingTable{
		dataplane.ListPending("chains", m.chains, most, func(c delta.Change[rules.ChainKey, rules.Chain]) string {
			return rules.ChainCommand(rules.ChainChange{Op: ruleOps[c.Op], Key: c.Key, Chain: c.Value})
		}),
		dataplane.ListPending("entries", m.entries, most, func(c delta.Change[entry, struct{}]) string {
			return rules.RuleCommand(rules.RuleChange{Op: ruleOps[c.Op], Chain: c.Key.chain, Rule: c.Key.rule})
		}),
		dataplane.ListPending("jumps", m.jumps.Tracker, most, func(c delta.Change[rules.JumpKey, rules.Jump]) string {
			return rules.JumpCommand(rules.JumpChange{Op: ruleOps[c.Op], Key: c.Key, Jump: c.Value})
		}),
	}
	return slices.DeleteFunc(all, func(t dataplane.PendingTable) bool { return len(t.Rows) == 0 && t.More == 0 })
}
