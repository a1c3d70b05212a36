package iptables

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/netfilter"
	"github.com/kube-ipvs/kube-ipvs/internal/delta"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nftables"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// Name selects this mode in --proxy-mode.
const Name = "iptables"

// Mode implements dataplane.Dataplane with rules alone. It belongs to the loop
// goroutine.
type Mode struct {
	log    *zap.Logger
	config Config
	deps   Deps
	host   model.Host

	frontends *dataplane.Frontends
	// inForce are the frontends of each Service that it really has.
	inForce map[model.ServiceID]map[model.FrontendKey]struct{}

	// The tables, in stage order. One write carries out chains and entries (write.go).
	chains   *delta.Table[netfilter.ChainKey, netfilter.Chain]
	entries  *delta.Table[entry, struct{}]
	jumps    *delta.Table[netfilter.JumpKey, netfilter.Jump]
	tables   *delta.Table[nftables.Key, struct{}]
	pipeline *dataplane.Pipeline
	// hooked: the pass in progress deletes jumps, and chains that they may lead to after them.
	hooked bool
	// sizes counts the wanted entries of each dispatch chain.
	sizes map[netfilter.ChainKey]int

	// Rows that several Services want are kept until the last one leaves.
	chainClaims *delta.Claims[model.ServiceID, netfilter.ChainKey, netfilter.Chain]
	entryClaims *delta.Claims[model.ServiceID, entry, struct{}]
	healthPorts *delta.Claims[model.ServiceID, entry, struct{}]

	cleared  bool // nothing is wanted any more
	doubt    bool // a write may or may not have been carried out: read before the next
	flows    flows
	audit    audit
	takeover takeover
}

var _ interface {
	dataplane.Inspectable
	dataplane.Auditor
} = (*Mode)(nil)

// New returns a mode that knows nothing of the kernel yet and wants its chains and
// jumps and no Service.
func New(log *zap.Logger, config Config, deps Deps) *Mode {
	if deps.Now == nil {
		deps.Now = time.Now
	}
	m := &Mode{
		log: log.Named(Name), config: config, deps: deps,
		frontends:   dataplane.NewFrontends(),
		inForce:     map[model.ServiceID]map[model.FrontendKey]struct{}{},
		sizes:       map[netfilter.ChainKey]int{},
		chainClaims: delta.NewClaims[model.ServiceID, netfilter.ChainKey, netfilter.Chain](model.ServiceID.Compare),
		entryClaims: delta.NewClaims[model.ServiceID, entry, struct{}](model.ServiceID.Compare),
		healthPorts: delta.NewClaims[model.ServiceID, entry, struct{}](model.ServiceID.Compare),
		flows:       flows{},
	}
	m.makeTables()
	m.wantBase()
	return m
}

// makeTables joins each table to its store and says what its rows wait for.
func (m *Mode) makeTables() {
	m.chains = delta.NewTable(nil, delta.Options[netfilter.ChainKey, netfilter.Chain]{
		Name: "chains", Compare: netfilter.ChainKey.Compare, Equal: same[netfilter.Chain],
	})
	m.entries = delta.NewTable(nil, delta.Options[entry, struct{}]{Name: "entries", Compare: compareEntries, Equal: same[struct{}]})
	m.jumps = delta.NewTable(jumpStore{netfilter.JumpStore{Rules: m.deps.Rules, Jumps: jumps}, &m.audit}, delta.Options[netfilter.JumpKey, netfilter.Jump]{
		Name: "jumps", Compare: jumps.Compare, Equal: same[netfilter.Jump],
		Wait: func(k netfilter.JumpKey) bool {
			return !m.there(netfilter.TargetOf(k))
		},
	})
	m.tables = delta.NewTable(netfilter.ProxyTableStore{Tables: m.deps.Tables}, delta.Options[nftables.Key, struct{}]{
		Name: "nftables", Compare: netfilter.CompareTables, Equal: same[struct{}], Owned: m.ownedTable,
		Hold: func(nftables.Key, bool) bool { return m.takeover.holding },
	})
	group := delta.NewGroup(m.chains, m.entries, m.writeGroup)
	m.pipeline = dataplane.NewPipeline(group.Lower(), group.Upper(), m.jumps, m.tables)
}

func same[V comparable](a, b V) bool { return a == b }

// Name implements dataplane.Dataplane.
func (m *Mode) Name() string { return Name }

// Frontends implements dataplane.Explainer.
func (m *Mode) Frontends() *dataplane.Frontends { return m.frontends }

// there tells whether a chain is in place.
func (m *Mode) there(k netfilter.ChainKey) bool {
	_, ok := m.chains.Believed(k)
	return ok
}

// wantBase wants the chains and jumps that every node has.
func (m *Mode) wantBase() {
	if m.cleared {
		return
	}
	for _, f := range m.config.Families {
		for k, c := range m.config.baseChains(f, m.host) {
			m.chains.SetDesired(k, c)
		}
		for k, j := range jumps.Rows(f, nil) {
			m.jumps.SetDesired(k, j)
		}
		for _, e := range m.config.baseEntries(f) {
			m.want(e, m.config.localhost())
		}
	}
}

// want keeps count of the entries of each chain beside wanting one, or not.
func (m *Mode) want(e entry, wanted bool) {
	_, was := m.entries.Desired(e)
	switch {
	case wanted && !was:
		m.sizes[e.chain]++
		m.entries.SetDesired(e, struct{}{})
	case !wanted && was:
		m.sizes[e.chain]--
		m.entries.DeleteDesired(e)
	}
}

// SetHost tells what is known of this machine: the addresses on which NodePorts answer
// are in the rules, and its range of pods is in those of each Service.
func (m *Mode) SetHost(host model.Host) {
	before := m.host
	m.host = host
	m.wantBase()
	if m.localMatchChanged(before.Node, host.Node) {
		for id := range m.inForce {
			m.renderService(id)
		}
	}
}

// localMatchChanged reports whether the match of local traffic changed.
func (m *Mode) localMatchChanged(before, now model.Node) bool {
	return slices.ContainsFunc(m.config.Families, func(f model.Family) bool {
		return m.config.Local.Match(f, before) != m.config.Local.Match(f, now)
	})
}

// Rebase renders anew what every node has, after what the settings tell has changed.
func (m *Mode) Rebase() { m.wantBase() }

// Start sets what the mode asks of the kernel.
func (m *Mode) Start(ctx context.Context) error {
	if m.deps.Tune == nil {
		return nil
	}
	return m.deps.Tune(ctx)
}

// Load reads the kernel.
func (m *Mode) Load(ctx context.Context) error {
	m.audit.stop()
	if _, err := m.loadRules(ctx); err != nil {
		return err
	}
	m.noteFound()
	return m.loadTables(ctx)
}

// loadRules reads all rules, and so settles what was in doubt.
func (m *Mode) loadRules(ctx context.Context) (dataplane.Drift, error) {
	chains, leads, err := netfilter.List(ctx, m.deps.Rules)
	if err != nil {
		return nil, fmt.Errorf("read rules: %w", err)
	}
	m.doubt = false
	return m.loadListing(chains, leads), nil
}

// ReloadRules reads all rules after a sign that somebody else has changed them.
func (m *Mode) ReloadRules(ctx context.Context) error {
	m.audit.stop()
	drift, err := m.loadRules(ctx)
	if err == nil && drift.Total() > 0 {
		m.log.Warn("rules are missing, writing them again", zap.Any("rows", drift))
		m.noteFound()
	}
	return err
}

// loadListing takes a listing for what is there.
func (m *Mode) loadListing(chains map[netfilter.ChainKey]netfilter.Chain, leads map[netfilter.JumpKey]netfilter.Jump) dataplane.Drift {
	found := map[entry]struct{}{}
	for k, c := range chains {
		switch {
		case !m.mine(k):
			delete(chains, k)
		case isDispatch(k):
			rest, entries := splitDispatch(k, c)
			chains[k] = rest
			for _, rule := range entries {
				found[entry{k, rule}] = struct{}{}
			}
		}
	}
	maps.DeleteFunc(leads, func(k netfilter.JumpKey, _ netfilter.Jump) bool {
		return !m.mine(netfilter.TargetOf(k))
	})
	return dataplane.Drift{"chains": m.chains.LoadRows(chains), "entries": m.entries.LoadRows(found), "jumps": m.jumps.LoadRows(leads)}
}

// mine tells whether a chain is this mode's, in a family that it serves.
func (m *Mode) mine(k netfilter.ChainKey) bool {
	return netfilter.OfIPTables(k) && slices.Contains(m.config.Families, k.Family)
}

// splitDispatch splits a dispatch chain into its entries and the rest behind them. A chain
// that is not in that form, because another mode has one of that name or a rule is there
// twice, is all rest, so that it is written anew; what is an entry in it is one all the same.
func splitDispatch(k netfilter.ChainKey, c netfilter.Chain) (rest netfilter.Chain, entries []netfilter.Line) {
	lines := slices.Collect(c.Lines())
	end := len(lines)
	for end > 0 && isRest(k, lines[end-1]) {
		end--
	}
	rest = netfilter.ChainOf(lines[end:])
	seen := make(map[netfilter.Line]struct{}, end)
	for _, l := range lines[:end] {
		if _, twice := seen[l]; twice || isRest(k, l) || !isEntry(k, l) {
			rest = c
			continue
		}
		seen[l] = struct{}{}
		entries = append(entries, l)
	}
	return rest, entries
}

// isRest reports whether a rule stands behind the entries.
func isRest(k netfilter.ChainKey, l netfilter.Line) bool {
	return k.Table == "nat" && k.Name == chainServices && l.JumpsTo() == chainNodePorts
}

// isEntry reports whether a rule leads to a chain of a Service, or is a verdict of filter.
func isEntry(k netfilter.ChainKey, l netfilter.Line) bool {
	if k.Table == "filter" {
		return l.Rule(k.Family).Comment() != ""
	}
	return netfilter.OfService(entry{k, l}.target())
}

// CarriesServices implements dataplane.Dataplane.
func (m *Mode) CarriesServices() bool {
	for k := range m.chains.Actual() {
		if netfilter.OfService(k) {
			return true
		}
	}
	return m.tables.Counts().Orphans > 0
}

// Set replaces what one Service wants. Memory only.
func (m *Mode) Set(plan model.ServicePlan) []dataplane.Conflict {
	changes, conflicts := m.frontends.Set(plan)
	m.change(changes)
	for _, h := range m.healthPorts.Set(plan.ID, renderHealth(plan.ID, plan.Health)) {
		m.want(h.Key, h.Held)
	}
	return conflicts
}

// change renders the Services anew whose frontends changed.
func (m *Mode) change(changes []dataplane.Change) {
	touched := map[model.ServiceID]struct{}{}
	for _, c := range changes {
		if c.Old != nil {
			touched[c.Old.Service] = struct{}{}
			delete(m.inForce[c.Old.Service], c.Key)
		}
		if c.New != nil {
			touched[c.New.Service] = struct{}{}
			if m.inForce[c.New.Service] == nil {
				m.inForce[c.New.Service] = map[model.FrontendKey]struct{}{}
			}
			m.inForce[c.New.Service][c.Key] = struct{}{}
		}
		m.noteFlows(c)
	}
	for id := range touched {
		m.noteDetours(id)
		m.renderService(id)
	}
}

// renderService brings the rows of one Service into the tables.
func (m *Mode) renderService(id model.ServiceID) {
	frontends := make([]model.Frontend, 0, len(m.inForce[id]))
	for k := range m.inForce[id] {
		f, _ := m.frontends.Get(k)
		frontends = append(frontends, f)
	}
	if len(frontends) == 0 {
		delete(m.inForce, id)
	}
	slices.SortFunc(frontends, func(a, b model.Frontend) int { return a.Key.Compare(b.Key) })
	r := m.config.render(frontends, m.host.Node)
	for _, h := range m.chainClaims.Set(id, r.chains) {
		if h.Held {
			m.chains.SetDesired(h.Key, h.Value)
		} else {
			m.chains.DeleteDesired(h.Key)
		}
	}
	for _, h := range m.entryClaims.Set(id, r.entries) {
		m.want(h.Key, h.Held)
	}
}

// Apply writes what is pending.
func (m *Mode) Apply(ctx context.Context, opts dataplane.ApplyOptions) dataplane.Result {
	if m.doubt && opts.Retry {
		lacked := m.lacking()
		if _, err := m.loadRules(ctx); err != nil {
			return m.pipeline.Skipped(delta.Failures(max(1, m.chains.Counts().Updates), err), opts)
		}
		if m.lacking() > lacked { // somebody goes on taking rules away
			m.noteFound()
		}
	}
	m.takeover.holding = true
	r := m.pipeline.Apply(ctx, opts)
	m.doubt = m.doubt || lostChain(r)
	if !opts.KeepOrphans {
		m.orderFlows()
	}
	if left := m.tables.Counts().Orphans; left > 0 && !opts.KeepOrphans && m.takeover.ends(r.Pending == left, opts.Retry) {
		r = r.Then(m.pipeline.Apply(ctx, opts))
		if gone := left - m.tables.Counts().Orphans; gone > 0 {
			m.log.Info("tables of kube-proxy's nftables mode removed", zap.Int("rows", gone))
		}
	}
	return r
}

// lostChain reports whether a jump could not be written because another process has deleted
// the chain that it leads to.
func lostChain(r dataplane.Result) bool {
	return slices.ContainsFunc(r.Stages, func(s dataplane.StageResult) bool {
		return s.Stage == "jumps" && errors.Is(s.Err(), rules.ErrNotExist)
	})
}

// lacking counts what is wanted and not known to be in place.
func (m *Mode) lacking() int {
	return m.chains.Counts().Updates + m.entries.Counts().Updates + m.jumps.Counts().Updates
}

// Tables reports the sizes of the tables in stage order.
func (m *Mode) Tables() []dataplane.TableStatus { return m.pipeline.Tables() }

// Kinds are what WriteRows can print.
func Kinds() []string { return []string{"rules"} }

// WriteRows prints what is desired as iptables-save does.
func (m *Mode) WriteRows(w io.Writer, kind string) error {
	write, err := m.Snapshot(kind)
	if err != nil {
		return err
	}
	return write(w)
}

// Clear wants nothing at all: the next Apply takes everything away.
func (m *Mode) Clear() {
	m.cleared = true
	m.audit.stop()
	m.frontends.Clear()
	m.inForce = map[model.ServiceID]map[model.FrontendKey]struct{}{}
	m.chainClaims = delta.NewClaims[model.ServiceID, netfilter.ChainKey, netfilter.Chain](model.ServiceID.Compare)
	m.entryClaims = delta.NewClaims[model.ServiceID, entry, struct{}](model.ServiceID.Compare)
	m.healthPorts = delta.NewClaims[model.ServiceID, entry, struct{}](model.ServiceID.Compare)
	m.sizes = map[netfilter.ChainKey]int{}
	clearTable(m.chains)
	clearTable(m.entries)
	clearTable(m.jumps)
	m.tables.LoadRows(nil) // a clean-up leaves them alone
}

func clearTable[K comparable, V any](t *delta.Table[K, V]) {
	for k := range maps.Collect(t.AllDesired()) {
		t.DeleteDesired(k)
	}
}

// Remove has nothing to take away: Start makes no objects.
func (m *Mode) Remove(context.Context) error { return nil }

// jumpStore reads and writes the jumps to our chains.
type jumpStore struct {
	netfilter.JumpStore
	audit *audit
}

// Write hands all changed jumps over at once.
func (s jumpStore) Write(ctx context.Context, changes []delta.Change[netfilter.JumpKey, netfilter.Jump]) []error {
	errs := s.JumpStore.Write(ctx, changes)
	for i, c := range changes {
		if at(errs, i) == nil {
			s.audit.touch(c.Key)
		}
	}
	return errs
}
