package cli

import (
	"context"
	"errors"
	"io/fs"
	"net/netip"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/agent"
	"github.com/kube-ipvs/kube-ipvs/internal/config"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/describe"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/nftrules"
	"github.com/kube-ipvs/kube-ipvs/internal/explain"
	"github.com/kube-ipvs/kube-ipvs/internal/firewall"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/link"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nft"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nftables"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/sysctl"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/wiring"
	"github.com/kube-ipvs/kube-ipvs/ipset"
)

// A readOnlyKernel has handles of the kernel for verbs that only read. No module is loaded for
// them. If a handle cannot be opened, every query to it returns that error, which never means
// "absent".
type readOnlyKernel struct {
	deps ipvs.Deps
	host agent.HostReader
	// rules are nil where there are no tools for them; families are those that they serve,
	// or both.
	rules    *rules.Handle
	families []model.Family
	// liberal is sysctl.Handle.Liberal.
	liberal func(context.Context) bool
	// nft: rules and sets are in nftables.
	nft bool
	// filters are those of all programs; nil where they cannot be read.
	filters *firewall.Reader
	close   func()
}

// settings returns the configuration with the place of the rules.
func (k readOnlyKernel) settings(c config.Config) config.Config {
	if k.nft {
		c.Rules = config.RulesNFTables
	}
	return c
}

// words returns those of nftables where rules and sets are there; else nil.
func (k readOnlyKernel) words() *explain.Words {
	if !k.nft {
		return nil
	}
	return &explain.Words{Row: nftrules.RowText, Group: nftrules.GroupText, Step: nftStep}
}

// nftStep returns a step of a packet in the words of nftables. An accept does not keep tables of other
// programs from dropping the packet.
func nftStep(step string) string {
	if step == describe.OthersThenAccept {
		return "filter-INPUT: accepted; filters of other programs see the packet, too"
	}
	return nftrules.StepText(step)
}

// counters returns those of rules; nil where rules cannot be read.
func (k readOnlyKernel) counters() counters {
	if k.rules != nil {
		return k.rules
	}
	c, _ := k.deps.Rules.(counters) // nftrules.Rules has them
	return c
}

// openReaders opens all that can be opened.
func openReaders(ctx context.Context, log *zap.Logger, c config.Config) (readOnlyKernel, error) {
	var closers []func()
	links, err := link.New(log, link.Options{DetachMark: link.DetachMark(c.MasqueradeBit)})
	if err != nil {
		return readOnlyKernel{}, err
	}
	closers = append(closers, links.Close)
	both := model.Families()
	out := readOnlyKernel{host: links, families: both[:], liberal: sysctl.New(log, sysctl.Options{RunDir: c.RunDir}).Liberal}
	out.deps.Links, out.deps.Announced = links, links
	tables, err := nftables.New(log, nftables.Options{})
	if err == nil {
		closers = append(closers, tables.Close)
		out.deps.Tables = tables
		filters := firewall.NewReader(tables)
		out.filters = &filters
	}
	if servers, err := vserver.New(log, vserver.Options{}); err == nil {
		closers = append(closers, servers.Close)
		out.deps.Servers = servers
	} else {
		out.deps.Servers = unreadServers{err: err}
	}
	if sets, err := ipset.Open(ctx, ipset.Options{}); err == nil {
		closers = append(closers, func() { _ = sets.Close() })
		out.deps.Sets = sets
	} else {
		out.deps.Sets = unreadSets{err: err}
	}
	if h, err := wiring.OpenRules(log, c, tables, nil); err == nil {
		out.deps.Rules, out.rules, out.families = h, h, wiring.Families(h)
	} else {
		out.deps.Rules = unreadRules{err: err}
	}
	if h, err := tablesInUse(ctx, log, c); err != nil {
		out.deps.Sets, out.deps.Rules, out.rules = unreadSets{err: err}, unreadRules{err: err}, nil
	} else if h != nil {
		closers = append(closers, h.Close)
		backend := nftrules.New(h)
		out.nft = true
		out.deps.Sets, out.deps.Rules, out.rules, out.families = backend.Sets(), backend.Rules(), nil, rules.UsableFamilies()
	}
	out.close = func() {
		for _, f := range closers {
			f()
		}
	}
	return out, nil
}

// tablesInUse opens nftables if our rules and sets are there. It returns nil if they are not.
func tablesInUse(ctx context.Context, log *zap.Logger, c config.Config) (*nft.Handle, error) {
	if c.Rules == config.RulesIPTables {
		return nil, nil
	}
	h, err := nft.New(log, nft.Options{})
	if errors.Is(err, nft.ErrUnsupported) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	there, err := nftrules.Exists(ctx, h)
	if errors.Is(err, fs.ErrPermission) && c.Rules == config.RulesAuto {
		there, err = false, nil // each row that is asked for fails with it
	}
	if err != nil || !there {
		h.Close()
		return nil, err
	}
	return h, nil
}

// These handles answer each query with the error of opening.

type unreadServers struct {
	ipvs.Servers
	err error
}

func (u unreadServers) ListServers(context.Context) (map[vserver.ServerKey]vserver.Server, error) {
	return nil, u.err
}

type unreadSets struct {
	ipvs.Sets
	err error
}

func (u unreadSets) ListSets(context.Context) ([]ipset.Set, error) { return nil, u.err }

func (u unreadSets) Stat(context.Context) ([]ipset.Info, error) { return nil, u.err }

type unreadRules struct {
	ipvs.Rules
	err error
}

func (u unreadRules) List(context.Context) (map[rules.ChainKey]rules.Chain, map[rules.JumpKey]rules.Jump, error) {
	return nil, nil, u.err
}

// countConnections returns the connections of some destinations.
func countConnections(ctx context.Context, servers ipvs.Servers, wanted map[vserver.DestinationKey]struct{}) (map[vserver.DestinationKey]vserver.Connections, error) {
	if len(wanted) == 0 {
		return nil, nil
	}
	counting := servers.Count(wanted)
	for {
		found, done, err := counting.Next(ctx)
		if err != nil || done {
			return found, err
		}
	}
}

// destinationsOf returns the destinations of some servers, and of all servers at some addresses.
func destinationsOf(ctx context.Context, servers ipvs.Servers, keys []vserver.ServerKey, addrs []netip.Addr) (map[vserver.DestinationKey]struct{}, error) {
	all, err := servers.ListServers(ctx)
	if err != nil {
		return nil, err
	}
	at := map[netip.Addr]bool{}
	for _, a := range addrs {
		at[a] = true
	}
	want := map[vserver.ServerKey]bool{}
	for _, k := range keys {
		want[k] = true
	}
	out := map[vserver.DestinationKey]struct{}{}
	var failed error
	for k := range all {
		if !want[k] && !at[k.Addr] {
			continue
		}
		found, err := servers.ListDestinations(ctx, k)
		failed = errors.Join(failed, err)
		for d := range found {
			out[d] = struct{}{}
		}
	}
	return out, failed
}
