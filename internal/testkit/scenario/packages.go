package scenario

import (
	"cmp"
	"context"
	"net/netip"
	"slices"

	"github.com/kube-ipvs/kube-ipvs/internal/agent"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/announce"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/iptables"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/sets"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/link"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/ipset"
)

// The dependencies of the modes, each with a fault proxy in front.

type tappedServers struct {
	ipvs.Servers
	tap *faultProxy
}

func (s tappedServers) ListServers(ctx context.Context) (map[vserver.ServerKey]vserver.Server, error) {
	return read(ctx, s.tap, pkgServers, s.Servers.ListServers)
}

func (s tappedServers) GetServers(ctx context.Context, keys []vserver.ServerKey) (map[vserver.ServerKey]vserver.Server, error) {
	return read(ctx, s.tap, pkgServers, func(ctx context.Context) (map[vserver.ServerKey]vserver.Server, error) {
		return s.Servers.GetServers(ctx, keys)
	})
}

func (s tappedServers) ListDestinations(ctx context.Context, k vserver.ServerKey) (map[vserver.DestinationKey]vserver.Destination, error) {
	return read(ctx, s.tap, pkgServers, func(ctx context.Context) (map[vserver.DestinationKey]vserver.Destination, error) {
		return s.Servers.ListDestinations(ctx, k)
	})
}

func (s tappedServers) BeginSurvey(ctx context.Context) error {
	return s.tap.one(ctx, pkgServers, looks, func() error { return s.Servers.BeginSurvey(ctx) })
}

func (s tappedServers) Survey(ctx context.Context, visit func(vserver.ServerKey, vserver.Digest)) (done bool, err error) {
	err = s.tap.one(ctx, pkgServers, looks, func() (err error) { done, err = s.Servers.Survey(ctx, visit); return err })
	return done, err
}

func (s tappedServers) Count(wanted map[vserver.DestinationKey]struct{}) vserver.Counting {
	return tappedCounting{s.Servers.Count(wanted), s.tap}
}

type tappedCounting struct {
	vserver.Counting
	tap *faultProxy
}

func (c tappedCounting) Next(ctx context.Context) (found map[vserver.DestinationKey]vserver.Connections, done bool, err error) {
	err = c.tap.one(ctx, pkgServers, looks, func() (err error) { found, done, err = c.Counting.Next(ctx); return err })
	return found, done, err
}

func (s tappedServers) WriteServers(ctx context.Context, changes []vserver.ServerChange) []error {
	text := func(c vserver.ServerChange) string { return c.Op.String() + " " + c.Key.String() }
	return write(ctx, s.tap, pkgServers, changes, text, func(good []vserver.ServerChange) []error { return s.Servers.WriteServers(ctx, good) })
}

func (s tappedServers) WriteDestinations(ctx context.Context, changes []vserver.DestinationChange) []error {
	text := func(c vserver.DestinationChange) string { return c.Op.String() + " " + c.Key.String() }
	return write(ctx, s.tap, pkgServers, changes, text, func(good []vserver.DestinationChange) []error {
		return s.Servers.WriteDestinations(ctx, good)
	})
}

type tappedSets struct {
	ipvs.Sets
	tap *faultProxy
}

func (s tappedSets) ListSets(ctx context.Context) ([]ipset.Set, error) {
	return read(ctx, s.tap, pkgSets, s.Sets.ListSets)
}

func (s tappedSets) Stat(ctx context.Context) ([]ipset.Info, error) {
	return read(ctx, s.tap, pkgSets, s.Sets.Stat)
}

func (s tappedSets) Unchanged(ctx context.Context, name string) bool {
	return sets.Unchanged(ctx, s.Sets, name)
}

func (s tappedSets) List(ctx context.Context, name string) (found ipset.Set, entries []ipset.Entry, err error) {
	err = s.tap.one(ctx, pkgSets, reads, func() (err error) { found, entries, err = s.Sets.List(ctx, name); return err })
	return found, entries, err
}

func (s tappedSets) CreateAll(ctx context.Context, sets ...ipset.Set) []error {
	text := func(set ipset.Set) string { return "create " + set.Name }
	return write(ctx, s.tap, pkgSets, sets, text, func(good []ipset.Set) []error {
		return orNone(s.Sets.CreateAll(ctx, good...), len(good))
	})
}

func (s tappedSets) Replace(ctx context.Context, set ipset.Set, entries []ipset.Entry) error {
	return s.tap.one(ctx, pkgSets, makes, func() error { return s.Sets.Replace(ctx, set, entries) })
}

func (s tappedSets) Destroy(ctx context.Context, name string) error {
	return s.tap.one(ctx, pkgSets, removes, func() error { return s.Sets.Destroy(ctx, name) })
}

func (s tappedSets) Write(ctx context.Context, set ipset.Set, changes []ipset.Change) []error {
	text := func(c ipset.Change) string { return c.Op.String() + " " + set.Name + " " + c.Entry.String() }
	return write(ctx, s.tap, pkgSets, changes, text, func(good []ipset.Change) []error { return s.Sets.Write(ctx, set, good) })
}

// WriteAll is of rows like Write: a batch may be carried out in part.
func (s tappedSets) WriteAll(ctx context.Context, batches ...ipset.Batch) [][]error {
	var rows []memberRow
	for _, b := range batches {
		for _, c := range b.Changes {
			rows = append(rows, memberRow{b.Set, c})
		}
	}
	errs := write(ctx, s.tap, pkgSets, rows, memberRow.String, func(good []memberRow) (errs []error) {
		batches := batched(good)
		for i, of := range s.Sets.WriteAll(ctx, batches...) {
			errs = append(errs, orNone(of, len(batches[i].Changes))...)
		}
		return errs
	})
	out := make([][]error, len(batches))
	for i, b := range batches {
		n := len(b.Changes)
		out[i], errs = errs[:n:n], errs[n:]
	}
	return out
}

// memberRow is a row of WriteAll.
type memberRow struct {
	set    ipset.Set
	change ipset.Change
}

func (r memberRow) String() string {
	return r.change.Op.String() + " " + r.set.Name + " " + r.change.Entry.String()
}

// batched puts rows together again, which come set by set.
func batched(rows []memberRow) (batches []ipset.Batch) {
	for _, r := range rows {
		if len(batches) == 0 || batches[len(batches)-1].Set.Name != r.set.Name {
			batches = append(batches, ipset.Batch{Set: r.set})
		}
		last := &batches[len(batches)-1]
		last.Changes = append(last.Changes, r.change)
	}
	return batches
}

// tappedModeRules are those of ipvs mode.
type tappedModeRules struct {
	ipvs.Rules
	tap *faultProxy
}

// tappedRules are those of iptables mode.
type tappedRules struct {
	tappedModeRules
	rules *tiedRules
}

var _ iptables.Rules = tappedRules{}

// Backend is the backend of the fake.
func (r tappedRules) Backend() rules.Backend { return r.rules.Backend() }

func (r tappedModeRules) List(ctx context.Context) (chains map[rules.ChainKey]rules.Chain, jumps map[rules.JumpKey]rules.Jump, err error) {
	err = r.tap.one(ctx, pkgRules, reads, func() (err error) { chains, jumps, err = r.Rules.List(ctx); return err })
	return chains, jumps, err
}

// Generation is not known while all calls fail.
func (r tappedModeRules) Generation(ctx context.Context) uint64 {
	if r.tap.broken(pkgRules) {
		return 0
	}
	return r.Rules.Generation(ctx)
}

func (r tappedModeRules) WriteChains(ctx context.Context, changes []rules.ChainChange) []error {
	text := func(c rules.ChainChange) string { return c.Op.String() + " " + c.Key.String() }
	return write(ctx, r.tap, pkgRules, changes, text, func(good []rules.ChainChange) []error { return r.Rules.WriteChains(ctx, good) })
}

func (r tappedModeRules) WriteJumps(ctx context.Context, changes []rules.JumpChange) []error {
	text := func(c rules.JumpChange) string { return c.Op.String() + " " + c.Key.String() }
	return write(ctx, r.tap, pkgRules, changes, text, func(good []rules.JumpChange) []error { return r.Rules.WriteJumps(ctx, good) })
}

// Write has rows of two kinds. It dies between two tables: each is committed as a whole.
func (r tappedRules) Write(ctx context.Context, chains []rules.ChainChange, edits []rules.RuleChange) (chainErrs, ruleErrs []error) {
	rows := make([]restoreRow, 0, len(chains)+len(edits))
	for _, c := range chains {
		rows = append(rows, restoreRow{chain: &c})
	}
	for _, e := range edits {
		rows = append(rows, restoreRow{edit: &e})
	}
	errs := writeUpTo(ctx, r.tap, pkgRules, rows, firstTables, restoreRow.String, func(good []restoreRow) []error {
		chains, edits := apart(good)
		chainErrs, ruleErrs := r.rules.Write(ctx, chains, edits)
		return slices.Concat(orNone(chainErrs, len(chains)), orNone(ruleErrs, len(edits)))
	})
	return errs[:len(chains)], errs[len(chains):]
}

// restoreRow is a row of Write: one of the two.
type restoreRow struct {
	chain *rules.ChainChange
	edit  *rules.RuleChange
}

func (r restoreRow) key() rules.ChainKey {
	if r.chain != nil {
		return r.chain.Key
	}
	return r.edit.Chain
}

// String is "add ip nat KUBE-A" and, for a single rule, "add ip nat KUBE-A -j KUBE-B".
func (r restoreRow) String() string {
	if r.chain != nil {
		return r.chain.Op.String() + " " + r.chain.Key.String()
	}
	return r.edit.Op.String() + " " + r.edit.Chain.String() + " " + r.edit.Rule
}

// apart are the rows as Write takes them; those of chains come first.
func apart(rows []restoreRow) (chains []rules.ChainChange, edits []rules.RuleChange) {
	for _, r := range rows {
		if r.chain != nil {
			chains = append(chains, *r.chain)
		} else {
			edits = append(edits, *r.edit)
		}
	}
	return chains, edits
}

// orNone makes of no errors at all one for each row.
func orNone(errs []error, rows int) []error {
	if errs == nil {
		return make([]error, rows)
	}
	return errs
}

// firstTables are the rows of the first half of the tables, in the order in which
// they are committed: a table is written whole or not at all.
func firstTables(rows []restoreRow) []restoreRow {
	type table struct {
		family rules.Family
		name   string
	}
	of := func(r restoreRow) table { return table{r.key().Family, r.key().Table} }
	var tables []table
	for _, r := range rows {
		if !slices.Contains(tables, of(r)) {
			tables = append(tables, of(r))
		}
	}
	slices.SortFunc(tables, func(a, b table) int {
		return cmp.Or(cmp.Compare(a.family, b.family), cmp.Compare(a.name, b.name))
	})
	tables = tables[:len(tables)/2]
	return slices.DeleteFunc(slices.Clone(rows), func(r restoreRow) bool { return !slices.Contains(tables, of(r)) })
}

type tappedLinks struct {
	ipvs.Links
	tap *faultProxy
}

func (l tappedLinks) Ensure(ctx context.Context) (created bool, err error) {
	err = l.tap.one(ctx, pkgLinks, makes, func() (err error) { created, err = l.Links.Ensure(ctx); return err })
	return created, err
}

func (l tappedLinks) List(ctx context.Context) (map[netip.Addr]struct{}, error) {
	return read(ctx, l.tap, pkgLinks, l.Links.List)
}

func (l tappedLinks) Write(ctx context.Context, changes []link.Change) []error {
	return write(ctx, l.tap, pkgLinks, changes, link.Change.String, func(good []link.Change) []error { return l.Links.Write(ctx, good) })
}

func (l tappedLinks) ListRoutes(ctx context.Context) (map[netip.Prefix]struct{}, error) {
	return read(ctx, l.tap, pkgLinks, l.Links.ListRoutes)
}

func (l tappedLinks) WriteRoutes(ctx context.Context, changes []link.RouteChange) []error {
	return write(ctx, l.tap, pkgLinks, changes, link.RouteChange.String, func(good []link.RouteChange) []error { return l.Links.WriteRoutes(ctx, good) })
}

func (l tappedLinks) ListDetached(ctx context.Context) (map[netip.Addr]bool, error) {
	return read(ctx, l.tap, pkgLinks, l.Links.ListDetached)
}

func (l tappedLinks) WriteDetached(ctx context.Context, changes []link.Change) []error {
	return write(ctx, l.tap, pkgLinks, changes, link.Change.String, func(good []link.Change) []error { return l.Links.WriteDetached(ctx, good) })
}

func (l tappedLinks) Remove(ctx context.Context) error {
	return l.tap.one(ctx, pkgLinks, removes, func() error { return l.Links.Remove(ctx) })
}

// tappedAnnounced are the routes that announce addresses, through the same fault proxy as the link.
type tappedAnnounced struct {
	announce.Kernel
	tap *faultProxy
}

func (a tappedAnnounced) ListAnnounced(ctx context.Context, table uint32) (map[link.Announcement]struct{}, error) {
	return read(ctx, a.tap, pkgLinks, func(ctx context.Context) (map[link.Announcement]struct{}, error) {
		return a.Kernel.ListAnnounced(ctx, table)
	})
}

func (a tappedAnnounced) WriteAnnounced(ctx context.Context, changes []link.AnnounceChange) []error {
	return write(ctx, a.tap, pkgLinks, changes, link.AnnounceChange.String, func(good []link.AnnounceChange) []error { return a.Kernel.WriteAnnounced(ctx, good) })
}

// tappedHost reads the host through the same fault proxy as the link.
type tappedHost struct {
	agent.HostReader
	tap *faultProxy
}

func (h tappedHost) Local(ctx context.Context) (map[netip.Addr]string, error) {
	return read(ctx, h.tap, pkgLinks, h.HostReader.Local)
}

func (h tappedHost) Gateways(ctx context.Context) ([]netip.Addr, error) {
	return read(ctx, h.tap, pkgLinks, h.HostReader.Gateways)
}
