package iptables

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/delta"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// Snapshot implements dataplane.Explainer.
func (m *Mode) Snapshot(kind string) (func(io.Writer) error, error) {
	if kind != "rules" {
		return nil, fmt.Errorf("iptables mode has no %s: it has rules alone", kind)
	}
	chains := maps.Collect(m.chains.AllDesired())
	for k, text := range m.dispatchTexts(nil) {
		chains[k] = rules.Chain{Rules: text}
	}
	jumps := maps.Collect(m.jumps.AllDesired())
	return func(w io.Writer) error { return rules.WriteSave(w, chains, jumps, compareInHook) }, nil
}

// WriteFound reads the kernel and prints what is ours there, as WriteRows prints what is
// desired. Rules of dispatch chains are in no order, see Dispatches.
func (m *Mode) WriteFound(ctx context.Context, w io.Writer, kind string) error {
	if kind != "rules" {
		return fmt.Errorf("iptables mode has no %s: it has rules alone", kind)
	}
	chains, jumps, err := m.deps.Rules.List(ctx)
	if err != nil {
		return fmt.Errorf("read rules: %w", err)
	}
	maps.DeleteFunc(chains, func(k rules.ChainKey, _ rules.Chain) bool { return !m.mine(k) })
	maps.DeleteFunc(jumps, func(k rules.JumpKey, _ rules.Jump) bool {
		return !m.mine(rules.ChainKey{Family: k.Family, Table: k.Table, Name: k.Target})
	})
	return rules.WriteSave(w, chains, jumps, compareInHook)
}

// Dispatches tells whether a chain leads each packet to one frontend at most, so that the
// order of its rules means nothing.
func Dispatches(table, chain string) bool {
	return isDispatch(rules.ChainKey{Table: table, Name: chain})
}

// RowsOf implements dataplane.Explainer. Chains are those of the Services that have the
// frontends, for their ports share them.
func (m *Mode) RowsOf(keys []model.FrontendKey) (dataplane.FrontendRows, error) {
	chains, pending := map[rules.ChainKey]rules.Chain{}, []string{}
	families, services := map[rules.Family]struct{}{}, map[model.ServiceID]struct{}{}
	for _, k := range keys {
		if f, ok := m.frontends.Get(k); ok {
			families[rules.Family(model.FamilyOf(k.Addr))] = struct{}{}
			services[f.Service] = struct{}{}
		}
	}
	for id := range services {
		for k, c := range m.rowsOf(id) {
			if had := chains[k]; isDispatch(k) && had.Rules != "" {
				c.Rules = had.Rules + "\n" + c.Rules
			}
			chains[k] = c
		}
	}
	jumps := maps.Collect(m.jumps.AllDesired())
	maps.DeleteFunc(jumps, func(k rules.JumpKey, _ rules.Jump) bool { _, ok := families[k.Family]; return !ok })
	for k := range jumps {
		pending = appendPending(pending, m.jumps.Tracker, k)
	}
	for k, c := range chains {
		if !isDispatch(k) {
			pending = appendPending(pending, m.chains, k)
			continue
		}
		for _, rule := range strings.Split(c.Rules, "\n") {
			if _, wanted := m.entries.Desired(entry{k, rule}); wanted {
				pending = appendPending(pending, m.entries, entry{k, rule})
			}
		}
	}
	slices.Sort(pending)
	var b strings.Builder
	err := rules.WriteSave(&b, chains, jumps, compareInHook)
	return dataplane.FrontendRows{Desired: map[string]string{"rules": b.String()}, Pending: pending, Draining: []string{}}, err
}

// String names an entry in what is pending.
func (e entry) String() string { return e.chain.String() + " " + e.rule }

func appendPending[K interface {
	comparable
	String() string
}, V comparable](out []string, t *delta.Tracker[K, V], k K) []string {
	want, _ := t.Desired(k)
	if have, there := t.Believed(k); !there || have != want {
		out = append(out, k.String())
	}
	return out
}

// rowsOf are the chains of a Service, with its entries of dispatch chains, and those that
// every node has.
func (m *Mode) rowsOf(id model.ServiceID) map[rules.ChainKey]rules.Chain {
	var frontends []model.Frontend
	for k := range m.inForce[id] {
		f, _ := m.frontends.Get(k)
		frontends = append(frontends, f)
	}
	slices.SortFunc(frontends, func(a, b model.Frontend) int { return a.Key.Compare(b.Key) })
	r := m.config.render(frontends, m.host.Node)
	out := r.chains
	lines := map[rules.ChainKey][]string{}
	for e := range r.entries {
		lines[e.chain] = append(lines[e.chain], e.rule)
	}
	for k, list := range lines {
		slices.Sort(list)
		out[k] = rules.Chain{Rules: strings.Join(list, "\n")}
	}
	for _, name := range []string{chainPostrouting, chainMarkMasq} {
		for _, f := range m.config.Families {
			k := rules.ChainKey{Family: rules.Family(f), Table: "nat", Name: name}
			if c, ok := m.chains.Desired(k); ok {
				out[k] = c
			}
		}
	}
	return out
}
