package iptables

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/announce"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/netfilter"
	"github.com/kube-ipvs/kube-ipvs/internal/delta"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/link"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// explainer implements dataplane.Explainer.
type explainer struct {
	config   Config
	rules    Rules
	tables   *tables
	services *services
	// announced has the only rows that are no rules; links has them in the kernel, and is nil without one.
	announced *announce.Manager
	links     announce.Kernel
}

// Kinds are the kinds of rows that WriteRows prints.
func Kinds() []string { return []string{"rules", "addresses"} }

// Frontends implements dataplane.Explainer.
func (x *explainer) Frontends() *dataplane.Frontends { return x.services.frontends }

// WriteRows prints the desired rows as iptables-save does, or the routes that announce addresses.
func (x *explainer) WriteRows(w io.Writer, kind string) error {
	write, err := x.Snapshot(kind)
	if err != nil {
		return err
	}
	return write(w)
}

// Snapshot implements dataplane.Explainer.
func (x *explainer) Snapshot(kind string) (func(io.Writer) error, error) {
	switch kind {
	case "rules":
		chains := maps.Collect(x.tables.chains.AllDesired())
		maps.Copy(chains, x.tables.desiredDispatch(nil))
		leads := maps.Collect(x.tables.jumps.AllDesired())
		return func(w io.Writer) error { return netfilter.WriteSave(w, chains, leads, jumps) }, nil
	case "addresses":
		announced := maps.Collect(x.announced.Rows.AllDesired())
		return func(w io.Writer) error { return link.WriteAnnouncements(w, maps.Keys(announced)) }, nil
	}
	return nil, missing(kind)
}

// missing is the error for rows of a kind that iptables mode does not have.
func missing(kind string) error {
	return fmt.Errorf("iptables mode has no %s: it has only %s", kind, strings.Join(Kinds(), " and "))
}

// WriteFound reads the kernel and prints our rules in the text of WriteRows. Rules of dispatch chains are
// in no order, see Dispatches.
func (x *explainer) WriteFound(ctx context.Context, w io.Writer, kind string) error {
	switch kind {
	case "rules":
		return x.writeFoundRules(ctx, w)
	case "addresses":
		return x.writeFoundAnnounced(ctx, w)
	}
	return missing(kind)
}

func (x *explainer) writeFoundAnnounced(ctx context.Context, w io.Writer) error {
	if x.links == nil {
		return nil
	}
	announced, err := x.links.ListAnnounced(ctx, 0)
	if err != nil {
		return err
	}
	return link.WriteAnnouncements(w, maps.Keys(announced))
}

func (x *explainer) writeFoundRules(ctx context.Context, w io.Writer) error {
	chains, leads, err := netfilter.List(ctx, x.rules)
	if err != nil {
		return fmt.Errorf("read rules: %w", err)
	}
	maps.DeleteFunc(chains, func(k netfilter.ChainKey, _ netfilter.Chain) bool { return !x.tables.mine(k) })
	maps.DeleteFunc(leads, func(k netfilter.JumpKey, _ netfilter.Jump) bool {
		return !x.tables.mine(netfilter.TargetOf(k))
	})
	return netfilter.WriteSave(w, chains, leads, jumps)
}

// Dispatches reports whether a chain leads each packet to one frontend at most, so that the order of its
// rules means nothing.
func Dispatches(table, chain string) bool {
	return isDispatch(netfilter.ChainKey{Table: table, Name: chain})
}

// RowsOf implements dataplane.Explainer. Chains are those of the Services that have the
// frontends, for their ports share them.
func (x *explainer) RowsOf(keys []model.FrontendKey) (dataplane.FrontendRows, error) {
	chains, pending := map[netfilter.ChainKey]netfilter.Chain{}, []string{}
	families, services := map[rules.Family]struct{}{}, map[model.ServiceID]struct{}{}
	for _, k := range keys {
		if f, ok := x.services.frontends.Get(k); ok {
			families[model.FamilyOf(k.Addr)] = struct{}{}
			services[f.Service] = struct{}{}
		}
	}
	for id := range services {
		for k, c := range x.rowsOf(id) {
			if isDispatch(k) {
				c = chains[k].Then(c)
			}
			chains[k] = c
		}
	}
	leads := maps.Collect(x.tables.jumps.AllDesired())
	maps.DeleteFunc(leads, func(k netfilter.JumpKey, _ netfilter.Jump) bool { _, ok := families[k.Family]; return !ok })
	for k := range leads {
		pending = appendPending(pending, x.tables.jumps, k)
	}
	for k, c := range chains {
		if !isDispatch(k) {
			pending = appendPending(pending, x.tables.chains, k)
			continue
		}
		for rule := range c.Lines() {
			if _, wanted := x.tables.entries.Desired(entry{k, rule}); wanted {
				pending = appendPending(pending, x.tables.entries, entry{k, rule})
			}
		}
	}
	slices.Sort(pending)
	var b strings.Builder
	err := netfilter.WriteSave(&b, chains, leads, jumps)
	return dataplane.FrontendRows{Desired: map[string]string{"rules": b.String()}, Pending: pending, Draining: []string{}}, err
}

func appendPending[K interface {
	comparable
	String() string
}, V comparable](out []string, t *delta.Table[K, V], k K) []string {
	want, _ := t.Desired(k)
	if have, there := t.Believed(k); !there || have != want {
		out = append(out, k.String())
	}
	return out
}

// rowsOf returns the chains of a Service, with its entries of dispatch chains, and the chains that every
// node has.
func (x *explainer) rowsOf(id model.ServiceID) map[netfilter.ChainKey]netfilter.Chain {
	r := x.services.rows(id)
	out := r.chains
	lines := map[netfilter.ChainKey][]netfilter.Line{}
	for e := range r.entries {
		lines[e.chain] = append(lines[e.chain], e.rule)
	}
	for k, list := range lines {
		slices.SortFunc(list, netfilter.Line.Compare)
		out[k] = netfilter.ChainOf(list)
	}
	for _, name := range []string{chainPostrouting, chainMarkMasq} {
		for _, f := range x.tables.families {
			k := netfilter.Nat(f, name)
			if c, ok := x.tables.chains.Desired(k); ok {
				out[k] = c
			}
		}
	}
	return out
}
