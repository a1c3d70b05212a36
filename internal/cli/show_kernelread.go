package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/nftrules"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/ownership"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/sets"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/netfilter"
	"github.com/kube-ipvs/kube-ipvs/internal/inspect"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/link"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nft"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/ipset"
	"github.com/kube-ipvs/kube-ipvs/scheduler"
)

// A kernelReader reads rows of the kernel. A handle is nil if its subsystem is not loaded.
type kernelReader struct {
	vserver interface {
		ListServers(ctx context.Context) (map[vserver.ServerKey]vserver.Server, error)
		ListDestinations(ctx context.Context, server vserver.ServerKey) (map[vserver.DestinationKey]vserver.Destination, error)
		Count(wanted map[vserver.DestinationKey]struct{}) vserver.Counting
	}
	ipset interface {
		Stat(ctx context.Context) ([]ipset.Info, error)
		List(ctx context.Context, name string) (ipset.Set, []ipset.Entry, error)
	}
	iptables interface {
		List(ctx context.Context) (map[rules.ChainKey]rules.Chain, map[rules.JumpKey]rules.Jump, error)
	}
	link interface {
		List(ctx context.Context) (map[netip.Addr]struct{}, error)
		ListRoutes(ctx context.Context) (map[netip.Prefix]struct{}, error)
		ListDetached(ctx context.Context) (map[netip.Addr]bool, error)
		ListAnnounced(ctx context.Context, table uint32) (map[link.Announcement]struct{}, error)
		Local(ctx context.Context) (map[netip.Addr]string, error)
	}
	nft      bool // sets and rules are in nftables
	agent    *inspect.Client
	excluded []netip.Prefix
	notes    io.Writer
	said     map[string]bool
	closers  []func()
}

// owners returns the Services of rows, from a running agent. Without an agent there are none.
func (r *kernelReader) owners(ctx context.Context, q query, withBackends bool) (*inspect.Owners, error) {
	frontends, err := r.agent.Frontends(ctx, inspect.Filter{Namespace: q.Namespace, Name: q.Name})
	var backends inspect.List[inspect.BackendRow]
	if err == nil && withBackends {
		backends, err = r.agent.Backends(ctx, inspect.Filter{Namespace: q.Namespace, Name: q.Name})
	}
	switch {
	case err != nil && q.ByService():
		return nil, fmt.Errorf("only a running agent knows which Services have a row: %w", err)
	case err != nil:
		r.note("the column of Services is empty: " + err.Error())
	}
	return inspect.NewOwners(frontends.Items, backends.Items), nil
}

// wants reports whether the query selects rows of an owner.
func (q query) wants(o inspect.Owned) bool { return !q.ByService() || o.Owner == inspect.OwnerService }

// servers lists virtual servers and their destinations.
func (r *kernelReader) servers(ctx context.Context, q query) (list inspect.List[inspect.KernelServerRow], err error) {
	list.Items = []inspect.KernelServerRow{}
	if r.vserver == nil {
		return list, nil
	}
	found, err := r.vserver.ListServers(ctx)
	if err != nil {
		return list, err
	}
	owners, err := r.owners(ctx, q, false)
	if err != nil {
		return list, err
	}
	var sets ownership.Sets
	if r.ipset != nil {
		sets = r.ipset
	}
	marks, err := ownership.Read(ctx, r.link, sets, r.excluded)
	if err != nil {
		return list, err
	}
	kept := map[vserver.ServerKey]inspect.Owned{}
	for k := range found {
		owned := inspect.OwnedBy(marks.Owns(k), owners.Frontend(netip.AddrPortFrom(k.Addr, k.Port), k.Protocol.String()))
		if q.VIP.Has(k.Addr, k.Port) && q.wants(owned) {
			kept[k] = owned
		}
	}
	destinations, counts, err := r.destinations(ctx, q, kept)
	if err != nil {
		return list, err
	}
	for _, k := range slices.SortedFunc(maps.Keys(kept), vserver.CompareServers) {
		list.Items = append(list.Items, serverRows(k, found[k], destinations[k], counts, kept[k], q)...)
	}
	return list, nil
}

// destinations reads those of some servers, and their connections.
func (r *kernelReader) destinations(ctx context.Context, q query, of map[vserver.ServerKey]inspect.Owned) (
	map[vserver.ServerKey]map[vserver.DestinationKey]vserver.Destination, map[vserver.DestinationKey]vserver.Connections, error,
) {
	out := map[vserver.ServerKey]map[vserver.DestinationKey]vserver.Destination{}
	wanted := map[vserver.DestinationKey]struct{}{}
	for k := range of {
		all, err := r.vserver.ListDestinations(ctx, k)
		if err != nil {
			return nil, nil, err
		}
		for d := range all {
			if !q.Backend.Has(d.Addr, d.Port) {
				delete(all, d)
				continue
			}
			wanted[d] = struct{}{}
		}
		out[k] = all
	}
	if len(wanted) == 0 {
		return out, nil, nil
	}
	for counting := r.vserver.Count(wanted); ; {
		counts, done, err := counting.Next(ctx)
		if err != nil || done {
			return out, counts, err
		}
	}
}

// serverRows returns a row for each destination, or one for a server without destinations.
func serverRows(k vserver.ServerKey, s vserver.Server, destinations map[vserver.DestinationKey]vserver.Destination, counts map[vserver.DestinationKey]vserver.Connections, owned inspect.Owned, q query) []inspect.KernelServerRow {
	server := inspect.KernelServerRow{
		Server: k.String(), Address: k.Addr, Port: k.Port, Protocol: k.Protocol.String(), Scheduler: s.Scheduler, Flags: serverFlags(s), Owned: owned,
	}
	if len(destinations) == 0 {
		if !q.Backend.Everywhere() {
			return nil
		}
		return []inspect.KernelServerRow{server}
	}
	var out []inspect.KernelServerRow
	for _, d := range slices.SortedFunc(maps.Keys(destinations), vserver.DestinationKey.Compare) {
		row := server
		row.Destination = netip.AddrPortFrom(d.Addr, d.Port).String()
		row.Weight, row.Forward = destinations[d].Weight, forwardNames[destinations[d].Forward]
		row.Active, row.Inactive = counts[d].Active, counts[d].Inactive
		out = append(out, row)
	}
	return out
}

var forwardNames = map[uint8]string{
	vserver.ForwardMasq: model.ForwardNAT.String(), vserver.ForwardRoute: model.ForwardDirect.String(),
	vserver.ForwardTunnel: model.ForwardTunnel.String(), vserver.ForwardLocal: "local",
}

// serverFlags returns the flags of a server in words.
func serverFlags(s vserver.Server) []string {
	var out []string
	if s.Flags&vserver.FlagPersistent != 0 {
		out = append(out, fmt.Sprintf("persistent %ds", s.Timeout))
	}
	if s.Flags&vserver.FlagOnePacket != 0 {
		out = append(out, "one-packet")
	}
	return append(out, scheduler.NamesOfFlags(s.Scheduler, s.Flags)...)
}

// sets lists sets.
func (r *kernelReader) sets(ctx context.Context, q query) (list inspect.List[inspect.KernelSetRow], err error) {
	list.Items = []inspect.KernelSetRow{}
	if q.ByService() || !q.VIP.Everywhere() || !q.Backend.Everywhere() {
		return list, errors.New("--namespace, --vip and --backend need the name of a set")
	}
	if r.ipset == nil {
		return list, nil
	}
	all, err := r.ipset.Stat(ctx)
	if err != nil {
		return list, err
	}
	for _, s := range all {
		row := inspect.KernelSetRow{
			Name: s.Set.Name, Type: string(s.Set.Type), Family: s.Set.Family.String(), Entries: s.Elements, References: s.References, Memory: s.Memory,
			Owned: inspect.OwnedBy(sets.Owned(s.Set.Name), nil),
		}
		if r.nft {
			row.Family, row.Type = nftrules.SetText(s.Set.Name)
		}
		list.Items = append(list.Items, row)
	}
	slices.SortFunc(list.Items, func(a, b inspect.KernelSetRow) int { return cmp.Compare(a.Name, b.Name) })
	return list, nil
}

// entries lists those of one set.
func (r *kernelReader) entries(ctx context.Context, q query) (list inspect.List[inspect.KernelEntryRow], err error) {
	list.Items = []inspect.KernelEntryRow{}
	if r.ipset == nil {
		return list, asAnswer(fmt.Errorf("set %s: %w", q.named, ipset.ErrNotExist))
	}
	_, entries, err := r.ipset.List(ctx, q.named)
	if errors.Is(err, ipset.ErrNotExist) {
		return list, asAnswer(err)
	}
	if err != nil {
		return list, err
	}
	ours := sets.Owned(q.named)
	owners, err := r.owners(ctx, q, true)
	if err != nil {
		return list, err
	}
	slices.SortFunc(entries, ipset.Entry.Compare)
	for _, e := range entries {
		var services []string
		if ours {
			services = entryOwners(owners, q.named, e)
		}
		owned := inspect.OwnedBy(ours, services)
		if q.wants(owned) && choosesEntry(q, e) {
			row := inspect.KernelEntryRow{Set: q.named, Entry: e.String(), Owned: owned}
			if r.nft {
				row.Entry = nftrules.EntryText(q.named, e)
			}
			list.Items = append(list.Items, row)
		}
	}
	return list, nil
}

// choosesEntry reports whether the query selects an entry by one of its addresses.
func choosesEntry(q query, e ipset.Entry) bool {
	has := func(p inspect.Place) bool {
		return p.Everywhere() || e.Addr.IsValid() && p.Has(e.Addr, e.Port)
	}
	return has(q.VIP) && has(q.Backend)
}

// entryOwners returns the Services of an entry: by the frontend or the backend that it names, by its address alone, or
// by the node port.
func entryOwners(o *inspect.Owners, set string, e ipset.Entry) []string {
	protocol, at := ipset.ProtocolName(e.Protocol), netip.AddrPortFrom(e.Addr, e.Port)
	switch {
	case !e.Addr.IsValid():
		for _, p := range []model.Protocol{model.TCP, model.UDP} {
			if strings.HasSuffix(set, "-"+strings.ToUpper(p.String())) {
				return o.NodePort(e.Port, p.String())
			}
		}
		return nil
	case e.Port == 0:
		return o.Address(e.Addr)
	case len(o.Frontend(at, protocol)) > 0:
		return o.Frontend(at, protocol)
	}
	return o.Backend(at, protocol)
}

// rules lists the rules of our chains, and the jumps into them.
func (r *kernelReader) rules(ctx context.Context, q query) (list inspect.List[inspect.KernelRuleRow], err error) {
	list.Items = []inspect.KernelRuleRow{}
	var chains map[netfilter.ChainKey]netfilter.Chain
	var jumps map[netfilter.JumpKey]netfilter.Jump
	if r.iptables != nil {
		if chains, jumps, err = netfilter.List(ctx, r.iptables); err != nil {
			return list, err
		}
	}
	if !hasChain(chains, jumps, q.named) {
		return list, asAnswer(fmt.Errorf("no chain %s of kube-ipvs, and no hook of that name with a jump to one", q.named))
	}
	if r.iptables == nil {
		return list, nil
	}
	owners, err := r.owners(ctx, q, false)
	if err != nil {
		return list, err
	}
	byChain := chainOwners(owners, chains)
	add := func(k netfilter.ChainKey, number int, l netfilter.Line, services []string) {
		row := ruleRow(k, number, l.String(), services)
		if (q.named == "" || row.Chain == q.named) && q.wants(row.Owned) && choosesRule(q, k, l) {
			if r.nft {
				row.Table, row.Chain, row.Rule = tableText(k, l)
			}
			list.Items = append(list.Items, row)
		}
	}
	for _, k := range slices.SortedFunc(maps.Keys(jumps), netfilter.JumpKey.Compare) {
		add(netfilter.ChainKey{Family: k.Family, Table: k.Table, Name: k.Hook}, 0, jumps[k].To(k.Target), nil)
	}
	for _, k := range slices.SortedFunc(maps.Keys(chains), netfilter.ChainKey.Compare) {
		lines := slices.Collect(chains[k].Lines())
		if len(lines) == 0 {
			add(k, 0, netfilter.Line{}, byChain[k])
		}
		for i, l := range lines {
			services := ruleOwners(owners, l.Rule(k.Family))
			if services == nil {
				services = byChain[k]
			}
			add(k, i+1, l, services)
		}
	}
	return list, nil
}

// tableText returns where a rule is in nftables, and its text there.
func tableText(k netfilter.ChainKey, l netfilter.Line) (table, chain, rule string) {
	chain, rule = nftrules.RuleText(k, l)
	if l == (netfilter.Line{}) {
		rule = "" // the chain is empty
	}
	return nft.TableName, chain, rule
}

// choosesRule reports whether a rule matches one of the addresses that are asked for.
func choosesRule(q query, k netfilter.ChainKey, l netfilter.Line) bool {
	if q.VIP.Everywhere() {
		return true
	}
	to := ruleTarget(l.Rule(k.Family))
	return q.VIP.Has(to.addr, to.port)
}

// hasChain reports whether there is a chain of the name, or a hook with a jump; it is true for
// an empty name, which chooses all.
func hasChain(chains map[netfilter.ChainKey]netfilter.Chain, jumps map[netfilter.JumpKey]netfilter.Jump, name string) bool {
	for k := range chains {
		if k.Name == name {
			return true
		}
	}
	for k := range jumps {
		if k.Hook == name {
			return true
		}
	}
	return name == ""
}

func ruleRow(k netfilter.ChainKey, number int, rule string, services []string) inspect.KernelRuleRow {
	return inspect.KernelRuleRow{
		Family: k.Family.Table(), Table: k.Table, Chain: k.Name, Number: number, Rule: rule, Owned: inspect.OwnedBy(true, services),
	}
}

// ruleOwners returns the Services that a rule names in its comment, or whose address it matches.
func ruleOwners(owners *inspect.Owners, r netfilter.Rule) []string {
	to := ruleTarget(r)
	if services := owners.Titled(to.comment); services != nil || !to.addr.IsValid() {
		return services
	}
	return owners.Frontend(netip.AddrPortFrom(to.addr, to.port), to.protocol)
}

// chainDepth is the number of chains of a Service that lead to each other: its firewall, external traffic, all endpoints,
// one endpoint.
const chainDepth = 4

// chainOwners returns the Services of the chains of iptables mode: those of the rules that lead to a chain.
func chainOwners(owners *inspect.Owners, chains map[netfilter.ChainKey]netfilter.Chain) map[netfilter.ChainKey][]string {
	out := map[netfilter.ChainKey][]string{}
	for range chainDepth {
		for k, c := range chains {
			for l := range c.Lines() {
				next := netfilter.ChainKey{Family: k.Family, Table: k.Table, Name: l.JumpsTo()}
				if out[next] != nil || !netfilter.OfService(next) {
					continue
				}
				services := out[k]
				if services == nil {
					services = ruleOwners(owners, l.Rule(k.Family))
				}
				if services != nil {
					out[next] = services
				}
			}
		}
	}
	return out
}

// target has the destination of the packets that a rule matches, and its comment.
type target struct {
	addr              netip.Addr
	port              uint16
	protocol, comment string
}

func ruleTarget(r netfilter.Rule) (t target) {
	for _, m := range r.Match {
		switch m := m.(type) {
		case netfilter.Destination:
			if p := netip.Prefix(m); p.IsSingleIP() {
				t.addr = p.Addr()
			}
		case netfilter.Protocol:
			t.protocol = m.String()
		case netfilter.DestinationPort:
			t.port = m.Port
		case netfilter.Comment:
			t.comment = string(m)
		}
	}
	return t
}

// addresses lists the addresses and ranges on which this machine answers.
func (r *kernelReader) addresses(ctx context.Context, q query) (list inspect.List[inspect.KernelAddressRow], err error) {
	list.Items = []inspect.KernelAddressRow{}
	owners, err := r.owners(ctx, q, false)
	if err != nil {
		return list, err
	}
	bound, err := r.link.List(ctx)
	if err != nil && !errors.Is(err, link.ErrNotExist) {
		return list, err
	}
	routes, err := r.link.ListRoutes(ctx)
	if err != nil {
		return list, err
	}
	detached, err := r.link.ListDetached(ctx)
	if err != nil {
		return list, err
	}
	announced, err := r.link.ListAnnounced(ctx, 0)
	if err != nil {
		return list, err
	}
	local, err := r.link.Local(ctx)
	if err != nil {
		return list, err
	}
	add := func(p netip.Prefix, kind, link string, owned inspect.Owned) {
		text := p.String()
		if kind != "route" {
			text = p.Addr().String()
		}
		if q.wants(owned) && (q.VIP.Everywhere() || q.VIP.Range.Overlaps(p)) {
			list.Items = append(list.Items, inspect.KernelAddressRow{Address: text, Kind: kind, Link: link, Owned: owned})
		}
	}
	for _, p := range slices.SortedFunc(maps.Keys(routes), link.ComparePrefixes) {
		add(p, "route", "lo", inspect.OwnedBy(true, nil))
	}
	for _, a := range slices.SortedFunc(maps.Keys(bound), netip.Addr.Compare) {
		kind := "address"
		if whole, is := detached[a]; is {
			kind = map[bool]string{true: "detached", false: "half detached"}[whole]
		}
		add(netip.PrefixFrom(a, a.BitLen()), kind, link.DefaultName, inspect.OwnedBy(true, owners.Address(a)))
	}
	for _, a := range slices.SortedFunc(maps.Keys(announced), link.Announcement.Compare) {
		add(netip.PrefixFrom(a.Addr, a.Addr.BitLen()), "announced", fmt.Sprintf("table %d", a.Table), inspect.OwnedBy(true, owners.Address(a.Addr)))
	}
	for _, a := range slices.SortedFunc(maps.Keys(local), netip.Addr.Compare) {
		add(netip.PrefixFrom(a, a.BitLen()), "address", local[a], inspect.OwnedBy(false, nil))
	}
	return list, nil
}
