package ipvs

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/addresses"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/destinations"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/sets"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/netfilter"
	"github.com/kube-ipvs/kube-ipvs/internal/delta"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/link"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/ipset"
)

// This file is for those who ask: what some frontends have, and what the kernel has of ours.

// RowsOf implements dataplane.Explainer.
func (m *Mode) RowsOf(keys []model.FrontendKey) (dataplane.FrontendRows, error) {
	s := selection{mode: m, servers: map[vserver.ServerKey]vserver.Server{}, destinations: map[vserver.DestinationKey]vserver.Destination{},
		addrs: map[netip.Addr]struct{}{}, routes: map[netip.Prefix]struct{}{}, detached: map[netip.Addr]bool{}, entries: map[sets.Key]struct{}{}}
	s.out = dataplane.FrontendRows{Pending: []string{}, Draining: []string{}}
	for _, k := range keys {
		if f, ok := m.frontends.Get(k); ok {
			s.frontend(&f)
		}
	}
	err := s.print()
	return s.out, err
}

// selection gathers the rows of some frontends.
type selection struct {
	mode         *Mode
	servers      map[vserver.ServerKey]vserver.Server
	destinations map[vserver.DestinationKey]vserver.Destination
	entries      map[sets.Key]struct{}
	addrs        map[netip.Addr]struct{}
	routes       map[netip.Prefix]struct{}
	detached     map[netip.Addr]bool
	families     [2]bool // IPv4, IPv6
	out          dataplane.FrontendRows
}

// pend adds a row that is not in place.
func pend[K, V comparable](s *selection, t *delta.Table[K, V], k K, line string) {
	want, wanted := t.Desired(k)
	if have, there := t.Believed(k); wanted && (!there || have != want) {
		s.out.Pending = append(s.out.Pending, t.Name()+": "+line)
	}
}

func (s *selection) frontend(f *model.Frontend) {
	m, server := s.mode, f.Key
	s.families[pick(f.Key.Addr.Is4(), 0, 1)] = true
	if want, ok := m.servers.Desired(server); ok {
		s.servers[server] = want
		pend(s, m.servers.Table, server, vserver.SaveServer(server, want))
	}
	for _, b := range f.Backends {
		s.destination(destinations.Key(server, b.Addr))
	}
	for _, k := range m.destinations.DrainingAt(server) {
		s.destination(k)
		s.out.Draining = append(s.out.Draining, fmt.Sprintf("%s %s", f.Key, netip.AddrPortFrom(k.Addr, k.Port)))
	}
	for _, e := range sets.Render(f) {
		s.entry(e)
	}
	if f.Kind == model.KindNodePort {
		s.entry(sets.NodePortIP(f.Key.Addr))
	}
	s.address(f.Key.Addr)
}

func (s *selection) destination(k vserver.DestinationKey) {
	if want, ok := s.mode.destinations.Desired(k); ok {
		s.destinations[k] = want
		pend(s, s.mode.destinations.Table, k, vserver.SaveDestination(k, want))
	}
}

func (s *selection) entry(k sets.Key) {
	if _, wanted := s.mode.sets.Members.Desired(k); wanted {
		s.entries[k] = struct{}{}
		pend(s, s.mode.sets.Members, k, k.Entry.SaveLine(k.Set))
	}
}

// address adds what makes an address local.
func (s *selection) address(a netip.Addr) {
	m := s.mode
	if _, wanted := m.addresses.Addresses.Desired(a); wanted {
		s.addrs[a] = struct{}{}
		pend(s, m.addresses.Addresses, a, a.String())
	}
	for p := range m.addresses.Routes.AllDesired() {
		if p.Contains(a) {
			s.routes[p] = struct{}{}
			pend(s, m.addresses.Routes, p, p.String())
		}
	}
	if _, wanted := m.addresses.Detached.Desired(a); wanted {
		s.detached[a] = true
		if m.addresses.Captured(a) {
			s.entry(sets.CaptureIP(a))
		} else {
			s.entry(sets.DirectIP(a))
		}
		pend(s, m.addresses.Detached, a, a.String())
	}
}

// print turns the rows into text, together with the rules of the families.
func (s *selection) print() error {
	var servers, entries, rule, addrs strings.Builder
	for k := range s.entries {
		fmt.Fprintln(&entries, k.Entry.SaveLine(k.Set))
	}
	lines := slices.Sorted(strings.Lines(entries.String()))
	chains, leads := s.rules()
	for _, err := range []error{
		vserver.WriteSave(&servers, s.servers, s.destinations),
		netfilter.WriteSave(&rule, chains, leads, jumps),
		s.mode.config.writeAddresses(&addrs, s.addrs, s.routes, s.detached),
	} {
		if err != nil {
			return err
		}
	}
	s.out.Desired = map[string]string{"servers": servers.String(), "sets": strings.Join(lines, ""), "rules": rule.String(), "addresses": addrs.String()}
	slices.Sort(s.out.Pending)
	return nil
}

// rules are those of the families: they do not depend on the frontends, but for detours.
func (s *selection) rules() (map[netfilter.ChainKey]netfilter.Chain, map[netfilter.JumpKey]netfilter.Jump) {
	m := s.mode
	chains, leads := maps.Collect(m.chains.AllDesired()), maps.Collect(m.jumps.AllDesired())
	maps.DeleteFunc(chains, func(k netfilter.ChainKey, _ netfilter.Chain) bool {
		return !s.families[pick(k.Family == rules.IPv4, 0, 1)]
	})
	maps.DeleteFunc(leads, func(k netfilter.JumpKey, _ netfilter.Jump) bool {
		return !s.families[pick(k.Family == rules.IPv4, 0, 1)]
	})
	for k := range chains {
		pend(s, m.chains, k, k.String())
	}
	for k := range leads {
		pend(s, m.jumps, k, k.String())
	}
	return chains, leads
}

// Expect has servers seen in the kernel by the next Load although nothing else marks them as
// ours: they are wanted.
func (m *Mode) Expect(keys []vserver.ServerKey) {
	for _, k := range keys {
		m.servers.SetDesired(k, vserver.Server{})
	}
}

// WriteFound prints what Load has found in the kernel of what is ours, as WriteRows prints what
// is desired. The header of a set that only grew is as it is wanted.
func (m *Mode) WriteFound(_ context.Context, w io.Writer, kind string) error {
	switch kind {
	case "servers":
		return vserver.WriteSave(w, maps.Collect(m.servers.Actual()), maps.Collect(m.destinations.Actual()))
	case "sets":
		return ipset.WriteSave(w, m.foundSets()...)
	case "rules":
		return netfilter.WriteSave(w, maps.Collect(m.chains.Actual()), maps.Collect(m.jumps.Actual()), jumps)
	case "addresses":
		return m.config.writeAddresses(w, maps.Collect(m.addresses.Addresses.Actual()), maps.Collect(m.addresses.Routes.Actual()), maps.Collect(m.addresses.Detached.Actual()))
	}
	return fmt.Errorf("no rows named %q: use one of %s", kind, strings.Join(Kinds(), ", "))
}

// foundSets are the sets in the kernel with their entries.
func (m *Mode) foundSets() []ipset.Contents {
	byName := map[string]*ipset.Contents{}
	for name, set := range m.sets.Sets.Actual() {
		if want := m.sets.Set(name); want.Compatible(set) {
			set = want
		}
		byName[name] = &ipset.Contents{Set: set}
	}
	for k := range m.sets.Members.Actual() {
		if c, ok := byName[k.Set]; ok {
			c.Entries = append(c.Entries, k.Entry)
		}
	}
	out := make([]ipset.Contents, 0, len(byName))
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		out = append(out, *byName[name])
	}
	return out
}

// Spot is where Look looks.
type Spot struct {
	// Servers are looked for, and all that are at one of Addrs.
	Servers []vserver.ServerKey
	Addrs   []netip.Addr
	// Sets are those whose entries are listed.
	Sets []string
}

// Look reads of the kernel what concerns some servers and sets, as text by kind, with the rules
// and addresses of ours: what RowsOf says is desired can be looked up there. A kind that could
// not be read is in failed, and only there; so is one of a room that is nil.
func Look(ctx context.Context, d Deps, at Spot) (found map[string]string, failed map[string]error) {
	found, failed = map[string]string{}, map[string]error{}
	for kind, read := range map[string]func(io.Writer) error{
		"servers":   func(w io.Writer) error { return lookServers(ctx, d.Servers, at, w) },
		"sets":      func(w io.Writer) error { return lookSets(ctx, d.Sets, at.Sets, w) },
		"rules":     func(w io.Writer) error { return lookRules(ctx, d.Rules, w) },
		"addresses": func(w io.Writer) error { return lookAddresses(ctx, d.Links, w) },
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

func lookServers(ctx context.Context, d Servers, at Spot, w io.Writer) error {
	if len(at.Servers)+len(at.Addrs) == 0 {
		return nil
	}
	servers, err := d.ListServers(ctx)
	if err != nil {
		return err
	}
	destinations := map[vserver.DestinationKey]vserver.Destination{}
	for k := range servers {
		if !slices.Contains(at.Servers, k) && !slices.Contains(at.Addrs, k.Addr) {
			delete(servers, k)
			continue
		}
		behind, err := d.ListDestinations(ctx, k)
		if err != nil {
			return err
		}
		maps.Copy(destinations, behind)
	}
	return vserver.WriteSave(w, servers, destinations)
}

func lookSets(ctx context.Context, d Sets, names []string, w io.Writer) error {
	there, err := d.ListSets(ctx)
	if err != nil {
		return err
	}
	for _, s := range there {
		if !slices.Contains(names, s.Name) {
			continue
		}
		_, entries, err := d.List(ctx, s.Name)
		if err != nil {
			return err
		}
		for _, e := range entries {
			fmt.Fprintln(w, e.SaveLine(s.Name))
		}
	}
	return nil
}

func lookRules(ctx context.Context, d Rules, w io.Writer) error {
	chains, leads, err := netfilter.List(ctx, d)
	if err != nil {
		return err
	}
	return netfilter.WriteSave(w, chains, leads, jumps)
}

func lookAddresses(ctx context.Context, d Links, w io.Writer) error {
	addrs, err := addresses.List(ctx, d)
	if err != nil {
		return err
	}
	routes, err := d.ListRoutes(ctx)
	if err != nil {
		return err
	}
	if err := link.WriteAddrs(w, addrs); err != nil {
		return err
	}
	return link.WriteRoutes(w, maps.Keys(routes))
}
