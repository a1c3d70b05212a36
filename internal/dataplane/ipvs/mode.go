package ipvs

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/addresses"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/destinations"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/servers"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/sets"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/netfilter"
	"github.com/kube-ipvs/kube-ipvs/internal/delta"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nftables"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// Name selects this mode in --proxy-mode.
const Name = "ipvs"

// Mode implements dataplane.Dataplane with IPVS. It belongs to the loop
// goroutine.
type Mode struct {
	log       *zap.Logger
	config    Config
	deps      Deps
	host      model.Host
	frontends *dataplane.Frontends

	// The tables, in stage order. Set changes what they desire, Apply what is.
	sets         *sets.Manager
	chains       *delta.Table[netfilter.ChainKey, netfilter.Chain]
	jumps        *delta.Table[netfilter.JumpKey, netfilter.Jump]
	servers      *servers.Manager
	destinations *destinations.Manager
	addresses    *addresses.Manager
	tables       *delta.Table[nftables.Key, struct{}]
	pipeline     *dataplane.Pipeline

	detours   detours
	flows     flows
	takeover  takeover
	cleared   bool // nothing is wanted any more
	rival     bool // another program was found to write its dispatch again
	successor Successor
	theirs    []rules.Family // in which rules of iptables mode are the successor's
	carried   []model.Family // those that the successor carries
	// found: the kernel was read, and what was found beside what is wanted was not looked at yet.
	found bool
	// order says what rows wait for in other tables.
	order *order
	// inspections are what is left of the audit's round in progress.
	inspections []inspection
	rounds      uint64
	// rulesRead is the generation of the rules as they were read last; 0 is not known.
	rulesRead uint64
	survey    survey
}

var _ interface {
	dataplane.Inspectable
	dataplane.Removable
	dataplane.Bootstrapper
	dataplane.Auditor
	dataplane.Timed
	dataplane.Drainer
} = (*Mode)(nil)

// New returns a mode that knows nothing of the kernel yet and wants its sets,
// chains and jumps and no Service.
func New(log *zap.Logger, config Config, deps Deps) *Mode {
	m := &Mode{
		log:       log.Named("ipvs"),
		config:    config,
		deps:      deps,
		frontends: dataplane.NewFrontends(),
		detours:   newDetours(config.Families),
		flows:     flows{},
		survey:    survey{seen: map[vserver.ServerKey]struct{}{}, doubted: map[vserver.ServerKey]struct{}{}},
	}
	m.makeTables()
	m.pipeline = dataplane.NewPipeline(
		m.sets.Sets,
		m.sets.Members,
		m.chains,
		m.jumps,
		m.servers,
		m.destinations,
		m.addresses.Routes,
		m.addresses.Stage(),
		m.addresses.Detached,
		m.tables,
	)
	m.wantBase()
	return m
}

// Name implements dataplane.Dataplane.
func (m *Mode) Name() string { return Name }

// String prints the mode with its stages in order.
func (m *Mode) String() string { return Name + " " + m.pipeline.String() }

// Frontends implements dataplane.Explainer.
func (m *Mode) Frontends() *dataplane.Frontends { return m.frontends }

// wantBase wants the sets, chains and jumps that every Service needs.
func (m *Mode) wantBase() {
	m.sets.Want(func(name string, f model.Family) bool { return !m.extras(f).hasSet(name) })
	guarded := m.addresses.Guarded()
	for _, f := range m.config.Families {
		more := m.extras(f)
		for k, c := range m.config.baseRules(f, m.host.Node, m.takeover.holding, guarded, more) {
			m.chains.SetDesired(k, c)
		}
		for k, j := range jumps.Rows(f, more.has) {
			m.jumps.SetDesired(k, j)
		}
		m.unwantExtras(f, more)
	}
}

// SetHost tells what is known of this machine: its pod ranges are in the rules,
// and the addresses on which NodePorts answer in a set.
func (m *Mode) SetHost(host model.Host) {
	before := m.host
	m.host = host
	m.addresses.SetHost(host)
	m.wantBase()
	m.sets.SetNodePortAddrs(before.NodePorts, host.NodePorts)
}

// Start makes the device and sets the sysctls. The device comes first: other
// software on the node keys on its existence.
func (m *Mode) Start(ctx context.Context) error {
	created, err := m.deps.Links.Ensure(ctx)
	if err != nil {
		return fmt.Errorf("prepare kube-ipvs0: %w", err)
	}
	if created {
		m.log.Info("device created", zap.String("table", "addresses"))
	}
	if m.deps.Tune == nil {
		return nil
	}
	return m.deps.Tune(ctx)
}

// Load reads the kernel, in the order in which one answer explains the next:
// addresses and members tell which servers are ours.
func (m *Mode) Load(ctx context.Context) error {
	m.inspections = nil
	if _, err := m.tables.Load(ctx); err != nil {
		return err
	}
	if err := m.addresses.Load(ctx); err != nil {
		return err
	}
	if err := m.sets.Load(ctx); err != nil {
		return err
	}
	m.addresses.KeepDirect()
	if _, err := m.loadRules(ctx); err != nil {
		return err
	}
	if _, err := m.servers.Load(ctx); err != nil {
		return err
	}
	if err := m.destinations.Load(ctx); err != nil {
		return err
	}
	m.found = true
	m.beginTakeover()
	return nil
}

// CarriesServices implements dataplane.Dataplane: without a virtual server nothing is carried,
// unless another mode of kube-proxy's did before.
func (m *Mode) CarriesServices() bool {
	for range m.servers.Actual() {
		return true
	}
	return m.foreignDispatch()
}

// HasBaseState implements dataplane.Bootstrapper: sets, base chains and jumps come first.
func (m *Mode) HasBaseState() bool { return true }

// Exclude replaces the ranges that hold virtual servers of others, and looks again
// at which are ours by that. After an error the old ranges hold.
func (m *Mode) Exclude(ctx context.Context, cidrs []netip.Prefix) error {
	before := m.config.ExcludeCIDRs
	m.config.ExcludeCIDRs = cidrs
	m.inspections = nil
	_, err := m.servers.Load(ctx)
	if err == nil {
		err = m.destinations.Load(ctx)
	}
	if err != nil {
		m.config.ExcludeCIDRs = before
	}
	disown(m.servers.Table, func(k vserver.ServerKey) bool { return m.config.excluded(k.Addr) })
	disown(m.destinations.Table, func(k vserver.DestinationKey) bool { return m.config.excluded(k.Server.Addr) })
	return err
}

// disown forgets the rows that were found and never asked for.
func disown[K comparable, V any](t *delta.Table[K, V], which func(K) bool) {
	for _, k := range slices.Collect(t.AllDeletes()) {
		if which(k) && !t.Deleting(k, false) {
			t.DropActual(k)
		}
	}
}

// loadRules reads chains and jumps, which come from one listing.
func (m *Mode) loadRules(ctx context.Context) (dataplane.Drift, error) {
	generation := m.deps.Rules.Generation(ctx) // before, so that what comes meanwhile is read next time
	chains, leads, err := netfilter.List(ctx, m.deps.Rules)
	if err != nil {
		return nil, fmt.Errorf("read rules: %w", err)
	}
	m.rulesRead = generation
	maps.DeleteFunc(leads, func(k netfilter.JumpKey, _ netfilter.Jump) bool {
		return !m.ownedChain(netfilter.TargetOf(k))
	})
	return dataplane.Drift{"chains": m.chains.LoadRows(chains), "jumps": m.jumps.LoadRows(leads)}, nil
}

// Set replaces what one Service wants. Memory only.
func (m *Mode) Set(plan model.ServicePlan) []dataplane.Conflict {
	changes, conflicts := m.frontends.Set(plan)
	for _, c := range changes {
		m.change(c)
	}
	m.sets.SetHealth(plan.ID, plan.Health)
	return conflicts
}

// change brings one frontend's rows into the tables.
func (m *Mode) change(c dataplane.Change) {
	m.servers.OnChange(c)
	m.destinations.OnChange(c)
	m.sets.OnChange(c.Old, c.New)
	m.addresses.OnChange(c)
	m.detours.change(c)
}

// Apply writes what is pending.
func (m *Mode) Apply(ctx context.Context, opts dataplane.ApplyOptions) dataplane.Result {
	if m.found && !opts.KeepOrphans {
		m.found = false
		m.staleFound()
	}
	m.sets.OnPass()
	m.destinations.OnPass(ctx, time.Now(), !opts.KeepOrphans)
	m.wantDetours(m.hasServer)
	m.order.leftovers = nil
	m.addresses.OnPass()
	result := m.applyDetours(ctx, opts, m.pipeline.Apply(ctx, opts))
	if m.handsOver(opts) || m.guardsStale() {
		result = result.Then(m.pipeline.Apply(ctx, opts))
		if m.guardsStale() { // of a route that is gone only now
			result = result.Then(m.pipeline.Apply(ctx, opts))
		}
	}
	result.Paced = m.servers.Paced() + m.addresses.Paced()
	m.orderFlows(opts.KeepOrphans)
	return result
}

// guardsStale reports whether rules guard a range that is not local any more, and has them changed.
func (m *Mode) guardsStale() bool {
	if !m.addresses.GuardsStale() {
		return false
	}
	m.wantBase()
	return true
}

// Due implements dataplane.Dataplane: what drains is counted again, what starts slowly gets more weight.
func (m *Mode) Due() time.Time { return m.destinations.Due() }

// Drains implements dataplane.Drainer.
func (m *Mode) Drains() dataplane.Drains { return m.destinations.Drains() }

// Moving implements dataplane.Drainer.
func (m *Mode) Moving(list *dataplane.MovingList) { m.destinations.Moving(list) }

// Tables reports the sizes of the tables in stage order.
func (m *Mode) Tables() []dataplane.TableStatus { return m.pipeline.Tables() }

// Clear wants nothing at all: the next Apply takes everything away.
func (m *Mode) Clear() {
	m.cleared, m.takeover = true, takeover{}
	m.addresses.Clear()
	for _, c := range m.frontends.Clear() {
		m.change(c)
	}
	m.sets.Clear()
	m.detours = newDetours(nil)
	clearTable(m.chains)
	clearTable(m.jumps)
}

func clearTable[K comparable, V any](t *delta.Table[K, V]) {
	for k := range maps.Collect(t.AllDesired()) {
		t.DeleteDesired(k)
	}
}

// Remove deletes the device, with any address that is left on it.
func (m *Mode) Remove(ctx context.Context) error {
	if err := m.deps.Links.Remove(ctx); err != nil {
		return fmt.Errorf("remove kube-ipvs0: %w", err)
	}
	return nil
}
