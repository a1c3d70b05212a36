package describe

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/chains"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/destinations"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/sets"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/netfilter"
	"github.com/kube-ipvs/kube-ipvs/internal/delta"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/link"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// RowsOf implements dataplane.Explainer.
func (d *Describer) RowsOf(keys []model.FrontendKey) (dataplane.FrontendRows, error) {
	s := selection{of: d.of, servers: map[vserver.ServerKey]vserver.Server{}, destinations: map[vserver.DestinationKey]vserver.Destination{},
		entries:     map[sets.Key]struct{}{},
		addressRows: addressRows{map[netip.Addr]struct{}{}, map[netip.Prefix]struct{}{}, map[netip.Addr]bool{}, map[link.Announcement]struct{}{}},
	}
	s.out = dataplane.FrontendRows{Pending: []string{}, Draining: []string{}}
	for _, k := range keys {
		if f, ok := d.of.Frontends.Get(k); ok {
			s.frontend(&f)
		}
	}
	err := s.print()
	return s.out, err
}

// selection gathers the rows of some frontends.
type selection struct {
	of           Options
	servers      map[vserver.ServerKey]vserver.Server
	destinations map[vserver.DestinationKey]vserver.Destination
	entries      map[sets.Key]struct{}
	addressRows
	families [2]bool // IPv4, IPv6
	out      dataplane.FrontendRows
}

// pend adds a row that is not in place.
func pend[K, V comparable](s *selection, t *delta.Table[K, V], k K, line string) {
	want, wanted := t.Desired(k)
	if have, there := t.Believed(k); wanted && (!there || have != want) {
		s.out.Pending = append(s.out.Pending, t.Name()+": "+line)
	}
}

func (s *selection) frontend(f *model.Frontend) {
	server := f.Key
	s.families[cond(f.Key.Addr.Is4(), 0, 1)] = true
	if want, ok := s.of.Servers.Desired(server); ok {
		s.servers[server] = want
		pend(s, s.of.Servers.Table, server, vserver.SaveServer(server, want))
	}
	for _, b := range f.Backends {
		s.destination(destinations.Key(server, b.Addr))
	}
	for _, k := range s.of.Destinations.DrainingAt(server) {
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
	if want, ok := s.of.Destinations.Desired(k); ok {
		s.destinations[k] = want
		pend(s, s.of.Destinations.Table, k, vserver.SaveDestination(k, want))
	}
}

func (s *selection) entry(k sets.Key) {
	if _, wanted := s.of.Sets.Members.Desired(k); wanted {
		s.entries[k] = struct{}{}
		pend(s, s.of.Sets.Members, k, k.Entry.SaveLine(k.Set))
	}
}

// address adds what makes an address local.
func (s *selection) address(a netip.Addr) {
	if _, wanted := s.of.Addresses.Addresses.Desired(a); wanted {
		s.addrs[a] = struct{}{}
		pend(s, s.of.Addresses.Addresses, a, a.String())
	}
	for p := range s.of.Addresses.Routes.AllDesired() {
		if p.Contains(a) {
			s.routes[p] = struct{}{}
			pend(s, s.of.Addresses.Routes, p, p.String())
		}
	}
	if _, wanted := s.of.Addresses.Detached.Desired(a); wanted {
		s.detached[a] = true
		if s.of.Addresses.Captured(a) {
			s.entry(sets.CaptureIP(a))
		} else {
			s.entry(sets.DirectIP(a))
		}
		pend(s, s.of.Addresses.Detached, a, a.String())
	}
	for row := range s.of.Announced.Rows.AllDesired() {
		if row.Addr == a {
			s.announced[row] = struct{}{}
			pend(s, s.of.Announced.Rows, row, row.String())
		}
	}
}

// print turns the rows into text, together with the rules of the families.
func (s *selection) print() error {
	var servers, entries, rule, addrs strings.Builder
	for k := range s.entries {
		fmt.Fprintln(&entries, k.Entry.SaveLine(k.Set))
	}
	lines := slices.Sorted(strings.Lines(entries.String()))
	rules, leads := s.rules()
	for _, err := range []error{
		vserver.WriteSave(&servers, s.servers, s.destinations),
		netfilter.WriteSave(&rule, rules, leads, chains.Jumps),
		s.write(&addrs, s.of.Config.Masquerade),
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
	rules, leads := maps.Collect(s.of.Chains.Chains.AllDesired()), maps.Collect(s.of.Chains.Jumps.AllDesired())
	maps.DeleteFunc(rules, func(k netfilter.ChainKey, _ netfilter.Chain) bool {
		return !s.families[cond(k.Family == model.IPv4, 0, 1)]
	})
	maps.DeleteFunc(leads, func(k netfilter.JumpKey, _ netfilter.Jump) bool {
		return !s.families[cond(k.Family == model.IPv4, 0, 1)]
	})
	for k := range rules {
		pend(s, s.of.Chains.Chains, k, k.String())
	}
	for k := range leads {
		pend(s, s.of.Chains.Jumps, k, k.String())
	}
	return rules, leads
}
