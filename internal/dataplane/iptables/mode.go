package iptables

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/announce"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/netfilter"
	"github.com/kube-ipvs/kube-ipvs/internal/delta"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// Name selects this mode in --proxy-mode.
const Name = "iptables"

// Mode implements dataplane.Dataplane with rules alone. It belongs to the loop goroutine. Its embedded
// parts implement the optional interfaces.
type Mode struct {
	*explainer
	*auditor

	log       *zap.Logger
	config    Config
	deps      Deps
	host      model.Host
	frontends *dataplane.Frontends

	tables    *tables
	announced *announce.Manager
	writer    *groupWriter
	pipeline  *dataplane.Pipeline

	services *services
	flows    *flows
	takeover takeover
}

var _ interface {
	dataplane.Inspectable
	dataplane.Auditor
	dataplane.Removable
	dataplane.Announcer
} = (*Mode)(nil)

// New returns a mode that has not read the kernel yet. It wants its chains and jumps, and no Service.
func New(log *zap.Logger, config Config, deps Deps) *Mode {
	if deps.Now == nil {
		deps.Now = time.Now
	}
	m := &Mode{log: log.Named(Name), config: config, deps: deps, frontends: dataplane.NewFrontends()}
	m.auditor = &auditor{deps: deps}
	m.tables = newTables(config.Families, deps, m.auditor, &m.takeover)
	m.auditor.tables = m.tables
	m.writer = &groupWriter{rules: deps.Rules, tables: m.tables, audit: m.auditor}
	group := delta.NewGroup(m.tables.chains, m.tables.entries, m.writer.writeGroup)
	m.announced = announce.New(announce.Options{
		Log: m.log, Kernel: deps.Announced, Table: config.AnnounceTable, InPlace: func(k model.FrontendKey) bool { return m.services.inPlace(k) },
	})
	m.auditor.announced = m.announced
	m.pipeline = dataplane.NewPipeline(group.Lower(), group.Upper(), m.tables.jumps, m.tables.nftables, m.announced.Rows)

	m.services = &services{config: config, host: &m.host, frontends: m.frontends, tables: m.tables}
	m.services.clear()
	m.flows = &flows{
		config: config, host: &m.host, kernel: deps.Flows, frontends: m.frontends, services: m.services, tables: m.tables,
		noted: map[model.FrontendKey]flowNote{},
	}
	m.explainer = &explainer{config: config, rules: deps.Rules, tables: m.tables, services: m.services, announced: m.announced, links: deps.Announced}
	m.Rebase()
	return m
}

// Name implements dataplane.Dataplane.
func (m *Mode) Name() string { return Name }

// Rebase wants the chains and jumps that every node has, as the settings are now.
func (m *Mode) Rebase() {
	if m.takeover.cleared {
		return
	}
	for _, f := range m.config.Families {
		for k, c := range m.config.baseChains(f, m.host) {
			m.tables.chains.SetDesired(k, c)
		}
		for k, j := range jumps.Rows(f, nil) {
			m.tables.jumps.SetDesired(k, j)
		}
		for _, e := range m.config.baseEntries(f) {
			m.tables.want(e, m.config.localhost())
		}
	}
}

// SetHost implements dataplane.Dataplane. Rules have the addresses on which NodePorts answer, and those
// of each Service the range of pods.
func (m *Mode) SetHost(host model.Host) {
	before := m.host
	m.host = host
	m.announced.SetHost(host)
	m.Rebase()
	if m.localMatchChanged(before.Node, host.Node) {
		m.services.renderAll()
	}
}

// localMatchChanged reports whether the match of local traffic changed.
func (m *Mode) localMatchChanged(before, now model.Node) bool {
	return slices.ContainsFunc(m.config.Families, func(f model.Family) bool {
		return m.config.Local.Match(f, before) != m.config.Local.Match(f, now)
	})
}

// Start sets the sysctls that the mode needs.
func (m *Mode) Start(ctx context.Context) error { return m.retune(ctx) }

// Load reads the kernel.
func (m *Mode) Load(ctx context.Context) error {
	m.stop()
	if _, err := m.loadRules(ctx); err != nil {
		return err
	}
	m.flows.onFound()
	_, err := m.announced.Load(ctx)
	return errors.Join(err, m.tables.loadNFTables(ctx))
}

// loadRules reads all rules, and so settles whether writes in doubt were carried out.
func (m *Mode) loadRules(ctx context.Context) (dataplane.Drift, error) {
	chains, leads, err := netfilter.List(ctx, m.deps.Rules)
	if err != nil {
		return nil, fmt.Errorf("read rules: %w", err)
	}
	m.writer.doubt = false
	return m.tables.loadRules(chains, leads), nil
}

// ReloadRules reads all rules after a sign that another process changed them.
func (m *Mode) ReloadRules(ctx context.Context) error {
	m.stop()
	drift, err := m.loadRules(ctx)
	if err == nil && drift.Total() > 0 {
		m.log.Warn("rules are missing, writing them again", zap.Any("rows", drift))
		m.flows.onFound()
	}
	return err
}

// CarriesServices implements dataplane.Dataplane.
func (m *Mode) CarriesServices() bool {
	for k := range m.tables.chains.Actual() {
		if netfilter.OfService(k) {
			return true
		}
	}
	return m.tables.nftables.Counts().Orphans > 0
}

// Set implements dataplane.Dataplane.
func (m *Mode) Set(plan model.ServicePlan) []dataplane.Conflict {
	changes, conflicts := m.frontends.Set(plan)
	touched := m.services.follow(changes)
	for _, c := range changes {
		m.flows.onChange(c)
		m.announced.OnChange(c)
	}
	for id := range touched {
		m.flows.onTouched(id)
		m.services.render(id)
	}
	m.services.setHealth(plan.ID, plan.Health)
	return conflicts
}

// Apply implements dataplane.Dataplane.
func (m *Mode) Apply(ctx context.Context, opts dataplane.ApplyOptions) dataplane.Result {
	if m.writer.doubt && opts.Retry {
		lacked := m.tables.lacking()
		if _, err := m.loadRules(ctx); err != nil {
			return m.pipeline.Skipped(delta.Failures(max(1, m.tables.chains.Counts().Updates), err), opts)
		}
		if m.tables.lacking() > lacked { // another process keeps deleting rules
			m.flows.onFound()
		}
	}
	m.takeover.holding = true
	r := m.pipeline.Apply(ctx, opts)
	m.writer.doubt = m.writer.doubt || lostChain(r)
	if !opts.KeepOrphans {
		m.flows.orderAll()
	}
	proxies := m.tables.nftables
	if left := proxies.Counts().Orphans; left > 0 && !opts.KeepOrphans && m.takeover.ends(r.Pending == left, opts.Retry) {
		r = r.Then(m.pipeline.Apply(ctx, opts))
		if gone := left - proxies.Counts().Orphans; gone > 0 {
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

// Tables implements dataplane.Dataplane.
func (m *Mode) Tables() []dataplane.TableStatus { return m.pipeline.Tables() }

// Announced returns the manager of the routes that announce addresses.
func (m *Mode) Announced() *announce.Manager { return m.announced }

// Announcement implements dataplane.Announcer.
func (m *Mode) Announcement(a netip.Addr) *dataplane.Announcement { return m.announced.Announcement(a) }

// Clear implements dataplane.Removable: no row is wanted any more.
func (m *Mode) Clear() {
	m.takeover.cleared = true
	m.stop()
	for _, c := range m.frontends.Clear() {
		m.announced.OnChange(c)
	}
	m.services.clear()
	m.tables.clear()
}

// Remove has nothing to delete: Start makes no objects.
func (m *Mode) Remove(context.Context) error { return nil }
