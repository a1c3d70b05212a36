package describe

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/announce"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/addresses"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/chains"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/sets"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/netfilter"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/link"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
)

// Kernel has the kernel packages that Read uses.
type Kernel struct {
	Servers Servers
	Sets    sets.Kernel
	Rules   netfilter.Lister
	Links   addresses.Kernel
	// Announced has the routes that announce addresses; nil reads none.
	Announced announce.Kernel
}

// Servers lists virtual servers and their destinations.
type Servers interface {
	ListServers(ctx context.Context) (map[vserver.ServerKey]vserver.Server, error)
	ListDestinations(ctx context.Context, k vserver.ServerKey) (map[vserver.DestinationKey]vserver.Destination, error)
}

// ReadScope is the part of the kernel that Read reads.
type ReadScope struct {
	// Servers are read, and all servers at one of Addrs.
	Servers []vserver.ServerKey
	Addrs   []netip.Addr
	// Sets are those whose entries are listed.
	Sets []string
}

// Read returns some servers and sets of the kernel as text by kind, with all our rules and addresses.
// The rows that RowsOf returns as desired can be found there. A kind that could not be read is in failed,
// and only there.
func Read(ctx context.Context, k Kernel, at ReadScope) (found map[string]string, failed map[string]error) {
	found, failed = map[string]string{}, map[string]error{}
	for kind, read := range map[string]func(io.Writer) error{
		"servers":   func(w io.Writer) error { return readServers(ctx, k.Servers, at, w) },
		"sets":      func(w io.Writer) error { return readSets(ctx, k.Sets, at.Sets, w) },
		"rules":     func(w io.Writer) error { return readRules(ctx, k.Rules, w) },
		"addresses": func(w io.Writer) error { return readAddresses(ctx, k, w) },
	} {
		var b strings.Builder
		if err := read(&b); err != nil {
			failed[kind] = err
			continue
		}
		found[kind] = b.String()
	}
	return found, failed
}

func readServers(ctx context.Context, from Servers, at ReadScope, w io.Writer) error {
	if len(at.Servers)+len(at.Addrs) == 0 {
		return nil
	}
	servers, err := from.ListServers(ctx)
	if err != nil {
		return err
	}
	destinations := map[vserver.DestinationKey]vserver.Destination{}
	for k := range servers {
		if !slices.Contains(at.Servers, k) && !slices.Contains(at.Addrs, k.Addr) {
			delete(servers, k)
			continue
		}
		behind, err := from.ListDestinations(ctx, k)
		if err != nil {
			return err
		}
		maps.Copy(destinations, behind)
	}
	return vserver.WriteSave(w, servers, destinations)
}

func readSets(ctx context.Context, from sets.Kernel, names []string, w io.Writer) error {
	there, err := from.ListSets(ctx)
	if err != nil {
		return err
	}
	for _, s := range there {
		if !slices.Contains(names, s.Name) {
			continue
		}
		_, entries, err := from.List(ctx, s.Name)
		if err != nil {
			return err
		}
		for _, e := range entries {
			fmt.Fprintln(w, e.SaveLine(s.Name))
		}
	}
	return nil
}

func readRules(ctx context.Context, from netfilter.Lister, w io.Writer) error {
	rules, leads, err := netfilter.List(ctx, from)
	if err != nil {
		return err
	}
	return netfilter.WriteSave(w, rules, leads, chains.Jumps)
}

func readAddresses(ctx context.Context, from Kernel, w io.Writer) error {
	addrs, err := addresses.List(ctx, from.Links)
	if err != nil {
		return err
	}
	routes, err := from.Links.ListRoutes(ctx)
	if err != nil {
		return err
	}
	if err := link.WriteAddrs(w, addrs); err != nil {
		return err
	}
	if err := link.WriteRoutes(w, maps.Keys(routes)); err != nil || from.Announced == nil {
		return err
	}
	announced, err := from.Announced.ListAnnounced(ctx, 0)
	if err != nil {
		return err
	}
	return link.WriteAnnouncements(w, maps.Keys(announced))
}
