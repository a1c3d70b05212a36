package main

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/iptables"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/netfilter"
	"github.com/kube-ipvs/kube-ipvs/internal/explain"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/telemetry"
)

// counted reads packet counters of rules; *rules.Handle is one.
type counted interface {
	Counted(ctx context.Context, tables []string, wanted func(rules.ChainKey) bool) ([]rules.Counted, error)
}

// dropping is what a mode says of its rules that drop packets.
type dropping struct {
	tables  []string
	reasons []dataplane.DropReason
	owned   func(rules.ChainKey) bool
	of      func(netfilter.ChainKey, netfilter.Line) (dataplane.Drop, bool)
}

func droppingIn(mode string) dropping {
	if mode == iptables.Name {
		return dropping{iptables.DropTables(), iptables.DropReasons(), iptables.OwnedChain, iptables.DropOf}
	}
	return dropping{ipvs.DropTables(), ipvs.DropReasons(), ipvs.OwnedChain, ipvs.DropOf}
}

// dropKey names a total.
type dropKey struct {
	reason dataplane.DropReason
	family rules.Family
}

// dropReader adds up what rules of ours drop, for the metrics. The counter of a rule ends with
// the rule, so the total is of what each has counted since the reading before. One goroutine
// uses it at a time.
type dropReader struct {
	rules    counted
	mode     func() string
	families []model.Family
	last     map[rules.Counted]uint64 // by rule, without its counter
	total    map[dropKey]uint64
}

func (p *program) newDropReader() *dropReader {
	mode := func() string {
		if p.ipvsMode() != nil {
			return ipvs.Name
		}
		return iptables.Name
	}
	return &dropReader{rules: p.kernel.rules, mode: mode, families: p.served, total: map[dropKey]uint64{}}
}

func (r *dropReader) read(ctx context.Context) ([]telemetry.Dropped, error) {
	d := droppingIn(r.mode())
	found, err := r.rules.Counted(ctx, d.tables, d.owned)
	if err != nil {
		return nil, err
	}
	for _, f := range r.families {
		for _, why := range d.reasons {
			r.total[dropKey{why, rules.Family(f)}] += 0 // shown before the first packet
		}
	}
	now, of := make(map[rules.Counted]uint64, len(r.last)), map[rules.Counted]dropKey{}
	for _, c := range found {
		drop, ok := d.of(c.Chain, netfilter.ReadLine(c.Rule))
		if !ok {
			continue
		}
		rule := rules.Counted{Chain: c.Chain, Rule: c.Rule}
		now[rule] += c.Packets
		of[rule] = dropKey{drop.Reason, c.Chain.Family}
	}
	for rule, packets := range now {
		r.total[of[rule]] += since(r.last[rule], packets)
	}
	r.last = now
	var out []telemetry.Dropped
	for _, k := range slices.SortedFunc(maps.Keys(r.total), dropKey.compare) {
		out = append(out, telemetry.Dropped{Reason: string(k.reason), Family: model.Family(k.family).String(), Packets: r.total[k]})
	}
	return out, nil
}

// since is by how much a counter grew; one that became less was written again.
func since(before, now uint64) uint64 {
	if now < before {
		return now
	}
	return now - before
}

func (k dropKey) compare(o dropKey) int {
	return cmp.Or(cmp.Compare(k.reason, o.reason), cmp.Compare(k.family, o.family))
}

// explainedDrops are the packets that rules dropped which a story may be about.
func explainedDrops(ctx context.Context, r counted, mode string, names []string) ([]explain.Drop, error) {
	d := droppingIn(mode)
	found, err := r.Counted(ctx, d.tables, d.owned)
	if err != nil {
		return nil, err
	}
	var out []explain.Drop
	for _, c := range found {
		drop, ok := d.of(c.Chain, netfilter.ReadLine(c.Rule))
		if ok && c.Packets > 0 && (drop.Port == "" || slices.ContainsFunc(names, func(name string) bool { return ofService(drop.Port, name) })) {
			out = append(out, explain.Drop{
				Reason: string(drop.Reason), Family: model.Family(c.Chain.Family).String(), Packets: c.Packets, Port: drop.Port, Rule: c.Chain.Name + " " + c.Rule,
			})
		}
	}
	return out, nil
}

// ofService reports whether a Service port, "shop/web:http", is one of a Service, "shop/web".
func ofService(port, name string) bool {
	return port == name || strings.HasPrefix(port, name+":")
}
