package wiring

import (
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/iptables"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/chains"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/netfilter"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
)

// Drops finds the rules of a mode that drop packets.
type Drops struct {
	Tables  []string
	Reasons []dataplane.DropReason
	// Owned reports whether a chain is ours, Of what a rule of such a chain drops.
	Owned func(rules.ChainKey) bool
	Of    func(netfilter.ChainKey, netfilter.Line) (dataplane.Drop, bool)
}

// DropsOf returns the drops of the mode of a name.
func DropsOf(mode string) Drops {
	if mode == iptables.Name {
		return Drops{iptables.DropTables(), iptables.DropReasons(), netfilter.OfIPTables, iptables.DropOf}
	}
	return Drops{chains.DropTables(), chains.DropReasons(), netfilter.Owned, chains.DropOf}
}
