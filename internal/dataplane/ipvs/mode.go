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
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/netfilter"
	"github.com/kube-ipvs/kube-ipvs/internal/delta"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nftables"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/ipset"
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
	catalogue catalogue
	frontends *dataplane.Frontends

	// The tables, in stage order. Set changes what they desire, Apply what is.
	sets         *delta.Table[string, ipset.Set]
	members      *delta.Table[memberKey, struct{}]
	chains       *delta.Table[netfilter.ChainKey, netfilter.Chain]
	jumps        *delta.Table[netfilter.JumpKey, netfilter.Jump]
	servers      *delta.Table[vserver.ServerKey, vserver.Server]
	destinations *delta.Table[vserver.DestinationKey, vserver.Destination]
	routes       *delta.Table[netip.Prefix, struct{}]
	addresses    *delta.Table[netip.Addr, struct{}]
	detached     *delta.Table[netip.Addr, bool]
	tables       *delta.Table[nftables.Key, struct{}]
	pipeline     *dataplane.Pipeline

	// Rows that several frontends share are kept until the last one leaves. Of entries
	// it is known how many frontends have one beside the first.
	shared        map[memberKey]int
	addressClaims *delta.Claims[model.FrontendKey, netip.Addr, struct{}]

	// healthClaims are for the health-check ports of Services.
	healthClaims *delta.Claims[model.ServiceID, memberKey, struct{}]
	detours      detours
	drains       drains
	ramp         ramp
	trash        trash
	flows        flows
	takeover     takeover
	cleared      bool // nothing is wanted any more
	rival        bool // another program was found to write its dispatch again
	successor    Successor
	theirs       []rules.Family // in which rules of iptables mode are the successor's
	carried      []model.Family // those that the successor carries
	pace         pace
	staging      staging
	binding      binding
	sequence     sequence
	// directs are the addresses from which backends answer themselves, or did.
	directs map[netip.Addr]struct{}
	// captures are the addresses with captured ports.
	captures captures
	// found: the kernel was read, and what was found beside what is wanted was not looked at yet.
	found bool
	// leftovers caches left during one pass; nil is not computed.
	leftovers *leftovers
	// changed: frontends are not what they were at the last Apply.
	changed bool
	// inspections are what is left of the audit's round in progress.
	inspections []inspection
	rounds      uint64
	// rulesRead is the generation of the rules as they were read last; 0 is not known.
	rulesRead uint64
	survey    survey
	sample    sample
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
		log:           log.Named("ipvs"),
		config:        config,
		deps:          deps,
		catalogue:     newCatalogue(config.Families),
		frontends:     dataplane.NewFrontends(),
		shared:        map[memberKey]int{},
		addressClaims: delta.NewClaims[model.FrontendKey, netip.Addr, struct{}](model.FrontendKey.Compare),
		healthClaims:  delta.NewClaims[model.ServiceID, memberKey, struct{}](model.ServiceID.Compare),
		detours:       newDetours(config.Families),
		drains:        newDrains(),
		ramp:          newRamp(),
		flows:         flows{},
		sequence:      newSequence(config.Node),
		directs:       map[netip.Addr]struct{}{},
		captures:      newCaptures(),
		survey:        survey{seen: map[vserver.ServerKey]struct{}{}, doubted: map[vserver.ServerKey]struct{}{}},
		sample:        sample{odd: map[string]oddCount{}},
	}
	m.makeTables()
	m.pipeline = dataplane.NewPipeline(
		m.sets,
		m.members,
		m.chains,
		m.jumps,
		serverStage{m.servers, m},
		m.destinations,
		m.routes,
		addressStage{m.addresses, m},
		m.detached,
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
	for name, set := range m.catalogue.sets {
		if known := m.catalogue.known[name]; !m.extras(known.family).hasSet(known.name) {
			m.sets.DeleteDesired(name)
			continue
		}
		m.sets.SetDesired(name, set)
	}
	m.binding.guarded = m.toGuard()
	for _, f := range m.config.Families {
		more := m.extras(f)
		for k, c := range m.config.baseRules(f, m.host.Node, m.takeover.holding, m.binding.guarded, more) {
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
	m.binding.judged = false
	m.wantBase()
	for _, a := range before.NodePorts {
		if !slices.Contains(host.NodePorts, a) {
			m.members.DeleteDesired(nodePortIP(a))
		}
	}
	for _, a := range host.NodePorts {
		if slices.Contains(m.config.Families, model.FamilyOf(a)) {
			m.members.SetDesired(nodePortIP(a), struct{}{})
		}
	}
}

// Start makes the device and sets the sysctls. The device comes first: other
// software on the node keys on its existence.
func (m *Mode) Start(ctx context.Context) error {
	created, err := m.deps.Links.Ensure(ctx)
	if err != nil {
		return fmt.Errorf("make ready kube-ipvs0: %w", err)
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
	m.inspections, m.sample.entries = nil, nil
	for _, load := range []func(context.Context) (int, error){m.tables.Load, m.loadRoutes, m.addresses.Load, m.detached.Load, m.sets.Load, m.members.Load} {
		if _, err := load(ctx); err != nil {
			return err
		}
	}
	m.keepDirect()
	if _, err := m.loadRules(ctx); err != nil {
		return err
	}
	for _, load := range []func(context.Context) (int, error){m.servers.Load, m.destinations.Load} {
		if _, err := load(ctx); err != nil {
			return err
		}
	}
	m.found = true
	m.beginRamp()
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
		_, err = m.destinations.Load(ctx)
	}
	if err != nil {
		m.config.ExcludeCIDRs = before
	}
	disown(m.servers, func(k vserver.ServerKey) bool { return m.config.excluded(k.Addr) })
	disown(m.destinations, func(k vserver.DestinationKey) bool { return m.config.excluded(k.Server.Addr) })
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
		return !m.ownedChain(netfilter.ChainKey{Family: k.Family, Table: k.Table, Name: k.Target})
	})
	return dataplane.Drift{"chains": m.chains.LoadRows(chains), "jumps": m.jumps.LoadRows(leads)}, nil
}

// Set replaces what one Service wants. Memory only.
func (m *Mode) Set(plan model.ServicePlan) []dataplane.Conflict {
	changes, conflicts := m.frontends.Set(plan)
	for _, c := range changes {
		m.change(c)
	}
	share(m.members, m.healthClaims.Set(plan.ID, renderHealth(plan.Health)))
	return conflicts
}

// renderHealth opens the filter to a health-check port.
func renderHealth(h model.HealthCheck) map[memberKey]struct{} {
	out := map[memberKey]struct{}{}
	for f, e := range map[model.Family]model.LocalEndpoints{model.IPv4: h.IPv4, model.IPv6: h.IPv6} {
		if h.Port != 0 && e.Served {
			out[memberKey{setName(f, setHealthCheck), ipset.Port(h.Port)}] = struct{}{}
		}
	}
	return out
}

// change brings one frontend's rows into the tables.
func (m *Mode) change(c dataplane.Change) {
	m.changed = true
	m.sequence.forget()
	if c.New != nil {
		m.servers.SetDesired(c.Key, renderServer(*c.New))
	} else {
		m.servers.DeleteDesired(c.Key)
	}
	m.changeDestinations(c)
	m.changeMembers(renderMembers(c.Old), renderMembers(c.New))
	holdings := m.addressClaims.Set(c.Key, bound(c.New))
	m.direct(c)
	m.capture(c)
	for _, h := range holdings {
		m.wantAddress(h.Key, h.Held)
	}
	m.detours.change(c)
}

// changeDestinations touches those alone that come, go or change.
func (m *Mode) changeDestinations(c dataplane.Change) {
	server, before, after := c.Key, backends(c.Old), backends(c.New)
	was, by := scale(c.Old), scale(c.New)
	m.ramp.noteNews(c)
	for _, k := range m.drains.at(server) {
		if _, stays := weighs(after, netip.AddrPortFrom(k.Addr, k.Port)); !stays {
			m.leave(k, c)
		}
	}
	for _, b := range before {
		if _, stays := weighs(after, b.Addr); !stays {
			m.leave(destinationKey(server, b.Addr), c)
		}
	}
	for _, b := range after {
		want := renderDestination(c.New, b.Weight*by)
		if weight, had := weighs(before, b.Addr); had && renderDestination(c.Old, weight*was) == want {
			continue
		}
		k := destinationKey(server, b.Addr)
		m.drains.end(k, dataplane.DrainBack)
		m.destinations.SetDesired(k, want)
	}
}

// changeMembers takes the entries of one frontend from what it had to what it has.
func (m *Mode) changeMembers(before, after []memberKey) {
	if slices.Equal(before, after) {
		return
	}
	for _, k := range without(after, before) {
		if _, wanted := m.members.Desired(k); wanted {
			m.shared[k]++
		}
		m.members.SetDesired(k, struct{}{})
	}
	for _, k := range without(before, after) {
		switch m.shared[k] {
		case 0:
			m.members.DeleteDesired(k)
		case 1:
			delete(m.shared, k)
		default:
			m.shared[k]--
		}
	}
}

// without lists the entries of one list that another has not.
func without(list, other []memberKey) []memberKey {
	if len(other) == 0 {
		return list
	}
	there := make(map[memberKey]struct{}, len(other))
	for _, k := range other {
		there[k] = struct{}{}
	}
	var out []memberKey
	for _, k := range list {
		if _, has := there[k]; !has {
			out = append(out, k)
		}
	}
	return out
}

// share makes a table desire what is held.
func share[O, K comparable](t *delta.Table[K, struct{}], holdings []delta.Holding[O, K, struct{}]) {
	for _, h := range holdings {
		if h.Held {
			t.SetDesired(h.Key, struct{}{})
		} else {
			t.DeleteDesired(h.Key)
		}
	}
}

// Apply writes what is pending.
func (m *Mode) Apply(ctx context.Context, opts dataplane.ApplyOptions) dataplane.Result {
	if m.found && !opts.KeepOrphans {
		m.found = false
		m.drainFound()
		m.staleFound()
	}
	now := time.Now()
	if m.drains.mayEnd(m.changed, now) {
		m.endDrains(ctx, now)
	}
	m.changed, m.sample.entries = false, nil
	m.climb(now, !opts.KeepOrphans)
	m.wantDetours(m.hasServer)
	m.leftovers = nil
	m.bind()
	result := m.applyDetours(ctx, opts, m.pipeline.Apply(ctx, opts))
	if m.handsOver(opts) || m.overGuarded() {
		result = result.Then(m.pipeline.Apply(ctx, opts))
		if m.overGuarded() { // of a route that is gone only now
			result = result.Then(m.pipeline.Apply(ctx, opts))
		}
	}
	result.Paced = m.pace.held + m.binding.pace.held
	m.orderFlows(opts.KeepOrphans)
	return result
}

// Due implements dataplane.Timed: when a draining destination is counted next, or a weight rises.
func (m *Mode) Due() time.Time {
	drains, ramp := m.drains.due(), m.ramp.due()
	if drains.IsZero() || !ramp.IsZero() && ramp.Before(drains) {
		return ramp
	}
	return drains
}

// Tables reports the sizes of the tables in stage order.
func (m *Mode) Tables() []dataplane.TableStatus { return m.pipeline.Tables() }

// Clear wants nothing at all: the next Apply takes everything away.
func (m *Mode) Clear() {
	m.cleared, m.takeover, m.binding = true, takeover{}, binding{}
	for _, c := range m.frontends.Clear() {
		m.change(c)
	}
	clearTable(m.members) // those that no frontend claims: node addresses, health-check ports
	m.healthClaims = delta.NewClaims[model.ServiceID, memberKey, struct{}](model.ServiceID.Compare)
	m.detours = newDetours(nil)
	clearTable(m.sets)
	clearTable(m.chains)
	clearTable(m.jumps)
	clearTable(m.routes)
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
