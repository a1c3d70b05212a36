package cli

import (
	"context"
	"slices"
	"strings"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/netfilter"
	"github.com/kube-ipvs/kube-ipvs/internal/explain"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
	"github.com/kube-ipvs/kube-ipvs/internal/wiring"
)

// counters reads packet counters of rules; *rules.Handle is one.
type counters interface {
	Counted(ctx context.Context, tables []string, wanted func(rules.ChainKey) bool) ([]rules.Counted, error)
}

// explainedDrops returns the drops that may be packets of the named Services.
func explainedDrops(ctx context.Context, r counters, mode string, names []string) ([]explain.Drop, error) {
	d := wiring.DropsOf(mode)
	found, err := r.Counted(ctx, d.Tables, d.Owned)
	if err != nil {
		return nil, err
	}
	var out []explain.Drop
	for _, c := range found {
		drop, ok := d.Of(c.Chain, netfilter.ReadLine(c.Rule))
		if ok && c.Packets > 0 && (drop.Port == "" || slices.ContainsFunc(names, func(name string) bool { return ofService(drop.Port, name) })) {
			out = append(out, explain.Drop{
				Reason: string(drop.Reason), Family: c.Chain.Family.String(), Packets: c.Packets, Port: drop.Port, Rule: c.Chain.Name + " " + c.Rule,
			})
		}
	}
	return out, nil
}

// ofService reports whether a Service port, "shop/web:http", is one of a Service, "shop/web".
func ofService(port, name string) bool {
	return port == name || strings.HasPrefix(port, name+":")
}
