package daemon

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/iptables"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/nftrules"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/netfilter"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/telemetry"
	"github.com/kube-ipvs/kube-ipvs/internal/wiring"
)

// counted reads packet counters of rules; *rules.Handle is one, and nftrules.Rules.
type counted interface {
	Counted(ctx context.Context, tables []string, wanted func(rules.ChainKey) bool) ([]rules.Counted, error)
}

// dropKey names a total.
type dropKey struct {
	reason dataplane.DropReason
	family rules.Family
}

// A dropReader adds up the packets that our rules drop, for the metrics. The counter of a rule ends
// with the rule, so the total grows by what each rule has counted since the last reading. One
// goroutine uses it at a time.
type dropReader struct {
	rules    counted
	mode     func() string
	families []model.Family
	last     map[rules.Counted]uint64 // by rule, without its counter
	total    map[dropKey]uint64
}

func newDropReader(d *daemon) *dropReader {
	mode := func() string {
		if d.mode.ipvs != nil {
			return ipvs.Name
		}
		return iptables.Name
	}
	var from counted = d.kernel.rules
	if d.kernel.backend != nil {
		from = nftrules.New(d.kernel.nft).Rules() // apart from the loop's own
	}
	return &dropReader{rules: from, mode: mode, families: d.served, total: map[dropKey]uint64{}}
}

func (r *dropReader) read(ctx context.Context) ([]telemetry.Dropped, error) {
	d := wiring.DropsOf(r.mode())
	found, err := r.rules.Counted(ctx, d.Tables, d.Owned)
	if err != nil {
		return nil, err
	}
	for _, f := range r.families {
		for _, why := range d.Reasons {
			r.total[dropKey{why, f}] += 0 // shown before the first packet
		}
	}
	now, of := make(map[rules.Counted]uint64, len(r.last)), map[rules.Counted]dropKey{}
	for _, c := range found {
		drop, ok := d.Of(c.Chain, netfilter.ReadLine(c.Rule))
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
		out = append(out, telemetry.Dropped{Reason: string(k.reason), Family: k.family.String(), Packets: r.total[k]})
	}
	return out, nil
}

// since returns by how much a counter grew. A counter that shrank belongs to a new rule.
func since(before, now uint64) uint64 {
	if now < before {
		return now
	}
	return now - before
}

func (k dropKey) compare(o dropKey) int {
	return cmp.Or(cmp.Compare(k.reason, o.reason), cmp.Compare(k.family, o.family))
}
