package wiring

import (
	"context"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/config"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/iptables"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/addresses"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/netfilter"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nftables"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/plan"
)

// CallObserver is called after each kernel call with its duration and its error.
type CallObserver = func(took time.Duration, err error)

// OpenRules opens the rules. tables has their generation; nil for a caller that lists once.
func OpenRules(log *zap.Logger, c config.Config, tables *nftables.Handle, called CallObserver) (*rules.Handle, error) {
	return rules.New(log, RulesOptions(c, tables, called))
}

// RulesOptions returns the options of the rules.
func RulesOptions(c config.Config, tables *nftables.Handle, called CallObserver) rules.Options {
	o := rules.Options{Called: called, Backend: rules.Backend(c.IPTables), Owned: netfilter.Owned}
	if tables != nil {
		o.Generation = func(ctx context.Context) (uint64, error) {
			n, err := tables.Generation(ctx)
			return uint64(n), err
		}
		o.Match = netfilter.MatchFinder(tables)
	}
	return o
}

// Families returns the families that iptables serves on this node, and so the agent.
func Families(r *rules.Handle) []model.Family {
	return r.Families()
}

// IPVSConfig returns the configuration of ipvs mode. Without tools it assumes recent ones.
func IPVSConfig(c config.Config, families []model.Family, tools *rules.Handle) ipvs.Config {
	return ipvs.Config{
		Node:          c.NodeName,
		Families:      families,
		MasqueradeAll: c.MasqueradeAll,
		Masquerade:    masquerade(c, tools),
		ExcludeCIDRs:  c.ExcludeCIDRs,
		Local:         LocalPods(c),
		Binding:       addresses.Binding(c.VIPBinding),
		ServiceCIDRs:  c.ServiceCIDRs,
		AnnounceTable: c.AnnounceTable,
	}
}

// IPTablesConfig returns the configuration of iptables mode. Without tools it assumes recent ones.
func IPTablesConfig(c config.Config, families []model.Family, tools *rules.Handle) iptables.Config {
	selected := plan.NodePortSelection(c.NodePorts)
	return iptables.Config{
		Families:      families,
		MasqueradeAll: c.MasqueradeAll,
		Masquerade:    masquerade(c, tools),
		Local:         LocalPods(c),
		Everywhere:    selected.Everywhere,
		Localhost:     c.LocalhostNodePorts && slices.Contains(families, model.IPv4),
		Loopback:      selected.Loopback,
		AnnounceTable: c.AnnounceTable,
	}
}

// LocalPods returns what tells the pods of this node from other clients.
func LocalPods(c config.Config) netfilter.LocalPods {
	return netfilter.LocalPods{
		Mode:         netfilter.LocalMode(c.DetectLocal.Mode),
		ClusterCIDRs: c.DetectLocal.ClusterCIDRs,
		Interface:    c.DetectLocal.Interface,
	}
}

func masquerade(c config.Config, tools *rules.Handle) netfilter.Masquerade {
	m := netfilter.Masquerade{Bit: c.MasqueradeBit, NodePorts: netfilter.PortRange(c.NodePortRange)}
	if tools != nil {
		m.RandomFully = func(f model.Family) bool { return tools.RandomFully(f) }
	}
	return m
}
