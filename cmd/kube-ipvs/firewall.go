package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/kube-ipvs/kube-ipvs/internal/agent"
	"github.com/kube-ipvs/kube-ipvs/internal/config"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/explain"
	"github.com/kube-ipvs/kube-ipvs/internal/firewall"
	"github.com/kube-ipvs/kube-ipvs/internal/inspect"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nftables"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/tune"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// filterReader reads the filters of all programs, those of kube-ipvs included.
type filterReader struct {
	nft  func(context.Context) ([]nftables.Filter, error)
	save func(ctx context.Context, nft map[rules.Family]bool) []rules.FilterTable
	// generation is 0 where the rules may change without another one.
	generation func(context.Context) uint64
}

// keptFilters are the tables that were read last, for as long as nothing changes.
type keptFilters struct {
	filterReader
	generation uint64
	tables     []firewall.Table
}

// read implements filterReader.read.
func (k *keptFilters) read(ctx context.Context) ([]firewall.Table, error) {
	now := k.filterReader.generation(ctx)
	if now != 0 && now == k.generation {
		return k.tables, nil
	}
	tables, err := k.filterReader.read(ctx)
	if k.generation = 0; err == nil {
		k.generation, k.tables = now, tables // what changes meanwhile has another generation
	}
	return tables, err
}

func newFilterReader(tables *nftables.Handle) filterReader {
	return filterReader{nft: tables.Filters, save: func(ctx context.Context, nft map[rules.Family]bool) []rules.FilterTable {
		return rules.FilterTables(ctx, rules.Options{}, nft)
	}, generation: func(ctx context.Context) uint64 {
		n, err := tables.Generation(ctx)
		if err != nil || rules.LegacyThere(rules.Options{}) {
			return 0
		}
		return uint64(n)
	}}
}

// read returns all tables. Those that iptables-nft has in nftables are judged by what
// iptables-save prints of them, for matches of xtables say nothing there.
func (r filterReader) read(ctx context.Context) ([]firewall.Table, error) {
	filters, err := r.nft(ctx)
	if err != nil && !errors.Is(err, nftables.ErrUnsupported) {
		return nil, err
	}
	byText := map[rules.Family]bool{}
	for _, f := range filters {
		if family := familyOfTable(f.Key); family != 0 && f.Unread == "" {
			byText[family] = true
		}
	}
	var out []firewall.Table
	for _, s := range r.save(ctx, byText) {
		t := firewall.FromSave(s.Family, s.Backend, s.Table)
		switch {
		case s.Err == nil:
		case s.Backend == rules.NFT:
			byText[s.Family] = false
			continue
		default:
			t.Unread = oneLine(s.Err)
		}
		out = append(out, t)
	}
	for _, f := range filters {
		if !byText[familyOfTable(f.Key)] {
			out = append(out, firewall.FromNFT(f))
		}
	}
	return out, ctx.Err()
}

// familyOfTable is that of the filter table of iptables-nft, 0 for another table.
func familyOfTable(k nftables.Key) rules.Family {
	switch k {
	case nftables.Key{Family: "ip", Name: "filter"}:
		return rules.IPv4
	case nftables.Key{Family: "ip6", Name: "filter"}:
		return rules.IPv6
	}
	return 0
}

// firewallFacts are what is known of the node.
func firewallFacts(c config.Config, ipvs bool, node model.Node) firewall.Facts {
	f := firewall.Facts{
		IPVS: ipvs, NodePorts: [2]uint16{c.NodePortRange.First, c.NodePortRange.Last}, ServiceCIDRs: c.ServiceCIDRs, PodCIDRs: c.DetectLocal.ClusterCIDRs,
	}
	for _, p := range node.PodCIDRs {
		f.Pods = append(f.Pods, p.Addr().Next().Next()) // the first is often that of the bridge
	}
	return f
}

// firewallKinds are those of frontends that somebody dials, by their names.
var firewallKinds = map[string]firewall.Kind{
	model.KindClusterIP.String(): firewall.ClusterIP, model.KindLoadBalancer.String(): firewall.External,
	model.KindExternalIP.String(): firewall.External, model.KindNodePort.String(): firewall.NodePort,
}

// walled is a frontend as firewalls are asked for it; false for one without backends, to which
// no packet gets in any case, and for one that is not in force.
func walled(k agent.Known) []firewall.Frontend {
	var out []firewall.Frontend
	for i := range k.Frontends {
		f := &k.Frontends[i]
		kind, dialled := firewallKinds[f.Kind.String()]
		at := slices.IndexFunc(f.Backends, func(b model.Backend) bool { return b.Weight > 0 })
		if !dialled || at < 0 || slices.ContainsFunc(k.Lost, func(c dataplane.Conflict) bool { return c.Key == f.Key }) {
			continue
		}
		out = append(out, firewall.Frontend{
			Service: k.ID.String(), Kind: kind, Addr: f.Key.Addr, Port: f.Key.Port, Protocol: uint8(f.Key.Protocol), Backend: f.Backends[at].Addr,
		})
	}
	return out
}

// wallLook adds to what was found what the filters of other programs do with a story.
type wallLook func(context.Context, *agent.Story, *explain.Found)

// wallsOf reads the filters; nil where that cannot be.
func wallsOf(c config.Config, filters *filterReader) wallLook {
	if filters == nil {
		return nil
	}
	return func(ctx context.Context, s *agent.Story, found *explain.Found) {
		tables, err := filters.read(ctx)
		if err != nil {
			found.Unclear = []string{"filters that cannot be read: " + oneLine(err)}
			return
		}
		judgeStory(s, tables, firewallFacts(c, s.Mode == "ipvs", model.Node{}), found)
	}
}

// judgeStory judges each frontend by itself for its packets, and all together for the remedy.
// Endpoints on this node are the pods that are clients.
func judgeStory(s *agent.Story, tables []firewall.Table, facts firewall.Facts, found *explain.Found) {
	found.Walls = map[string][]explain.Wall{}
	var all []firewall.Frontend
	for i := range s.Services {
		one := &s.Services[i]
		backends, pods := endpointsOf(one, s.Node)
		facts.Pods = append(facts.Pods, pods...)
		for _, f := range one.Frontends {
			key, err := model.ParseFrontendKey(f.Key)
			kind, dialled := firewallKinds[f.Kind]
			if err != nil || !dialled || len(f.Ways) == 0 || f.Taking == 0 {
				continue
			}
			asked := firewall.Frontend{Service: one.Name, Kind: kind, Addr: key.Addr, Port: key.Port, Protocol: uint8(key.Protocol), Backend: backends[key.Addr.Is6()]}
			all = append(all, asked)
			for _, b := range firewall.Judge(tables, []firewall.Frontend{asked}, facts).Blocks {
				found.Walls[f.Key] = append(found.Walls[f.Key], wallOf(b))
			}
		}
	}
	r := firewall.Judge(tables, all, facts)
	found.Unclear = append(r.Unclear, r.Unread...)
	for _, b := range r.Blocks {
		found.Firewalls = append(found.Firewalls, explain.Firewall{What: b.String(), Fix: b.Fix})
	}
}

func wallOf(b firewall.Block) explain.Wall {
	w := explain.Wall{Where: fmt.Sprintf("%s hook, %s", b.Hook, b.Cause), Reply: b.Reply}
	for _, from := range b.From {
		w.From = append(w.From, map[string]dataplane.Origin{firewall.FromPods: dataplane.FromPod, firewall.FromOutside: dataplane.FromOutside}[from])
	}
	return w
}

// endpointsOf are endpoints that take connections, one of each family (true is IPv6), and
// those of them that are pods of a node.
func endpointsOf(s *agent.ServiceStory, node string) (all map[bool]netip.AddrPort, pods []netip.Addr) {
	all = map[bool]netip.AddrPort{}
	for _, p := range s.Ports {
		for _, e := range p.Endpoints {
			if v := e.Cluster; v != nil && v.Use.Backend() || e.Local != nil && e.Local.Use.Backend() {
				all[e.Address.Addr().Is6()] = e.Address
			}
			if e.Node == node {
				pods = append(pods, e.Address.Addr())
			}
		}
	}
	return all, pods
}

// wallCheck asks whether filters of other programs drop packets of the Services there are.
func wallCheck(c config.Config, read func(context.Context) ([]firewall.Table, error), frontends func(context.Context) ([]firewall.Frontend, error)) tune.Check {
	const unread = "run as root, in the network namespace of the host"
	return tune.Check{Name: "firewalls of others", Fix: unread, Run: func(ctx context.Context) error {
		tables, err := read(ctx)
		if err != nil {
			return tune.Warning(err)
		}
		list, err := frontends(ctx)
		if err != nil {
			return tune.Warning(err)
		}
		r := firewall.Judge(tables, list, firewallFacts(c, c.Mode != config.ModeIPTables, model.Node{}))
		var found, fixes []string
		for _, b := range r.Blocks {
			found = append(found, b.String())
			fixes = append(fixes, b.Fix...)
		}
		switch {
		case len(found) > 0:
			return tune.Remedied(tune.Warning(errors.New(strings.Join(found, "; "))), strings.Join(fixes, " && "))
		case len(r.Unread) > 0:
			return tune.Remedied(tune.Warning(fmt.Errorf("not judged: %s", strings.Join(r.Unread, "; "))), "look at them by hand: packets to Services must not be dropped there")
		case len(r.Unclear) > 0:
			return tune.Note("%d addresses and ports; it cannot be said of %s", len(list), strings.Join(r.Unclear, ", "))
		}
		return tune.Note("none drops packets to the %d addresses and ports of Services", len(list))
	}}
}

// frontendsOf asks the running agent, and the kernel where there is none.
func frontendsOf(c config.Config, look func(context.Context) (population, error)) func(context.Context) ([]firewall.Frontend, error) {
	client := inspect.NewClient(c.Socket())
	return func(ctx context.Context) ([]firewall.Frontend, error) {
		var out []firewall.Frontend
		list, err := client.Frontends(ctx, inspect.Filter{})
		if err == nil {
			for _, f := range list.Items {
				p, err := model.ParseProtocol(strings.ToUpper(f.Protocol))
				if kind, dialled := firewallKinds[f.Kind]; err == nil && dialled && f.Winner == "" && f.Backends > 0 {
					out = append(out, firewall.Frontend{Service: f.Namespace + "/" + f.Name, Kind: kind, Addr: f.Address, Port: f.Port, Protocol: uint8(p)})
				}
			}
			return out, nil
		}
		p, err := look(ctx)
		for _, k := range p.servers {
			f := firewall.Frontend{Service: k.String(), Kind: firewall.External, Addr: k.Addr, Port: k.Port, Protocol: k.Protocol}
			if _, here := p.marks.Links[k.Addr]; here {
				f.Kind = firewall.NodePort
			}
			out = append(out, f)
		}
		return out, err
	}
}
