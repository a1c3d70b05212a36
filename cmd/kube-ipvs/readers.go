package main

import (
	"context"
	"errors"
	"net/netip"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/agent"
	"github.com/kube-ipvs/kube-ipvs/internal/config"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs"
	"github.com/kube-ipvs/kube-ipvs/internal/firewall"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/link"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nftables"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/tune"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/ipset"
)

// readers are handles of the kernel for verbs that only read. No module is loaded for them. What
// cannot be opened answers every question with the reason: that is never "absent".
type readers struct {
	deps ipvs.Deps
	host agent.HostReader
	// rules are nil where there are no tools for them; families are those that they serve,
	// or both.
	rules    *rules.Handle
	families []model.Family
	// liberal tells how connection tracking is (tune.Tuner.Liberal).
	liberal func(context.Context) bool
	// filters are those of all programs; nil where they cannot be read.
	filters *firewall.Reader
	close   func()
}

// counters are those of rules; nil where there are no tools for them.
func (k readers) counters() counted {
	if k.rules == nil {
		return nil
	}
	return k.rules
}

// openReaders opens what there is to read.
func openReaders(ctx context.Context, log *zap.Logger, c config.Config) (readers, error) {
	k := &kernel{}
	var err error
	if k.link, err = link.New(log, link.Options{DetachMark: link.DetachMark(c.MasqueradeBit)}); err != nil {
		return readers{}, k.close(err)
	}
	both := model.Families()
	out := readers{host: k.link, families: both[:], liberal: tune.New(log, tune.Options{RunDir: c.RunDir}).Liberal, close: func() { _ = k.close(nil) }}
	out.deps.Links = k.link
	if k.tables, err = nftables.New(log, nftables.Options{}); err == nil {
		out.deps.Tables = k.tables
		filters := firewall.NewReader(k.tables)
		out.filters = &filters
	}
	if k.servers, err = vserver.New(log, vserver.Options{}); err == nil {
		out.deps.Servers = k.servers
	} else {
		k.servers, out.deps.Servers = nil, unreadServers{err: err}
	}
	if k.sets, err = ipset.Open(ctx, ipset.Options{}); err == nil {
		out.deps.Sets = k.sets
	} else {
		k.sets, out.deps.Sets = nil, unreadSets{err: err}
	}
	if k.rules, err = openRules(log, c, k.tables, nil); err == nil {
		out.deps.Rules, out.rules, out.families = k.rules, k.rules, families(k.rules)
	} else {
		out.deps.Rules = unreadRules{err: err}
	}
	return out, nil
}

// The stand-ins of what could not be opened.

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

// countConnections asks how many the kernel remembers of some destinations.
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

// destinationsOf lists those of some servers.
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
