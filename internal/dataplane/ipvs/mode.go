package ipvs

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/announce"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/audit"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/describe"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/migrate"
	"github.com/kube-ipvs/kube-ipvs/internal/delta"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// Name selects this mode in --proxy-mode.
const Name = "ipvs"

// Mode implements dataplane.Dataplane with IPVS. It belongs to the loop goroutine. Its embedded parts
// implement the optional interfaces.
type Mode struct {
	*describe.Describer
	*audit.Auditor
	dataplane.Timed
	dataplane.Drainer
	*losses

	log       *zap.Logger
	config    Config
	deps      Deps
	host      model.Host
	frontends *dataplane.Frontends

	managers
	pipeline *dataplane.Pipeline
	base     *base
	order    *order
	flows    *flows
	pickup   *pickup
	takeover *migrate.Takeover
	handoff  *migrate.Handoff
	// found: the kernel was read, and flows of before were not noted yet.
	found bool
}

var _ interface {
	dataplane.Inspectable
	dataplane.Removable
	dataplane.Bootstrapper
	dataplane.Auditor
	dataplane.Timed
	dataplane.Drainer
	dataplane.Announcer
} = (*Mode)(nil)

// New returns a mode that has not read the kernel yet. It wants its sets, chains and jumps, and no
// Service.
func New(log *zap.Logger, config Config, deps Deps) *Mode {
	m := &Mode{log: log.Named("ipvs"), config: config, deps: deps, frontends: dataplane.NewFrontends()}
	wireTables(m)
	wireParts(m)
	m.base.want()
	return m
}

// Name implements dataplane.Dataplane.
func (m *Mode) Name() string { return Name }

// SetHost implements dataplane.Dataplane. Rules have the pod ranges of the host, and a set the addresses
// on which NodePorts answer.
func (m *Mode) SetHost(host model.Host) {
	before := m.host
	m.host = host
	m.addresses.SetHost(host)
	m.announced.SetHost(host)
	m.base.want()
	m.sets.SetNodePortAddrs(before.NodePorts, host.NodePorts)
}

// Start makes the device and then sets the sysctls. Other software on the node keys on the device.
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

// Load reads the kernel. Addresses and entries come first: they show which servers are ours.
func (m *Mode) Load(ctx context.Context) error {
	m.Restart()
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
	if _, err := m.chains.Load(ctx); err != nil {
		return err
	}
	if _, err := m.servers.Load(ctx); err != nil {
		return err
	}
	if err := m.destinations.Load(ctx); err != nil {
		return err
	}
	if _, err := m.announced.Load(ctx); err != nil {
		return err
	}
	m.found = true
	m.takeover.Begin()
	return nil
}

// CarriesServices implements dataplane.Dataplane. Without a virtual server no Service is carried, unless
// another mode of kube-proxy carried any before.
func (m *Mode) CarriesServices() bool {
	for range m.servers.Actual() {
		return true
	}
	return m.takeover.ForeignDispatch()
}

// HasBaseState implements dataplane.Bootstrapper: sets, base chains and jumps come first.
func (m *Mode) HasBaseState() bool { return true }

// Expect has the next Load find some servers that no mark shows as ours: they are wanted.
func (m *Mode) Expect(keys []vserver.ServerKey) {
	for _, k := range keys {
		m.servers.SetDesired(k, vserver.Server{})
	}
}

// Exclude replaces the ranges that hold virtual servers of other programs, and reads again which servers
// are ours by that. After an error the old ranges hold.
func (m *Mode) Exclude(ctx context.Context, cidrs []netip.Prefix) error {
	before := m.config.ExcludeCIDRs
	m.config.ExcludeCIDRs = cidrs
	m.Restart()
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

// disown drops rows that were found and that no Service ever wanted.
func disown[K comparable, V any](t *delta.Table[K, V], which func(K) bool) {
	for _, k := range slices.Collect(t.AllDeletes()) {
		if which(k) && !t.Deleting(k, false) {
			t.DropActual(k)
		}
	}
}

// Set implements dataplane.Dataplane.
func (m *Mode) Set(plan model.ServicePlan) []dataplane.Conflict {
	changes, conflicts := m.frontends.Set(plan)
	m.change(changes)
	m.sets.SetHealth(plan.ID, plan.Health)
	return conflicts
}

// change hands changed frontends to the managers.
func (m *Mode) change(changes []dataplane.Change) {
	for _, c := range changes {
		m.servers.OnChange(c)
		m.destinations.OnChange(c)
		m.sets.OnChange(c.Old, c.New)
		m.addresses.OnChange(c)
		m.chains.OnChange(c)
		m.announced.OnChange(c)
		m.pickup.onChange(c)
	}
}

// Apply implements dataplane.Dataplane. The pipeline runs again for rows that only the run before made
// possible: detours to new servers, the end of a takeover, rules of a route that is gone.
func (m *Mode) Apply(ctx context.Context, opts dataplane.ApplyOptions) dataplane.Result {
	if m.found && !opts.KeepOrphans {
		m.found = false
		m.flows.onFound()
	}
	m.pickup.onPass(ctx, !opts.KeepOrphans)
	m.sets.OnPass()
	m.destinations.OnPass(ctx, time.Now(), !opts.KeepOrphans)
	m.chains.WantDetours(m.order.hasServer)
	m.order.leftovers = nil
	m.addresses.OnPass()
	result := m.pipeline.Apply(ctx, opts)
	if m.chains.RetryDetours(m.order.hasServer) {
		result = result.Then(m.pipeline.Apply(ctx, dataplane.ApplyOptions{KeepOrphans: opts.KeepOrphans}))
	}
	if m.takeover.Ends(opts) || m.base.guardsStale() {
		result = result.Then(m.pipeline.Apply(ctx, opts))
		if m.base.guardsStale() { // of a route that is gone only now
			result = result.Then(m.pipeline.Apply(ctx, opts))
		}
	}
	result.Paced = m.servers.Paced() + m.addresses.Paced()
	m.flows.order(opts.KeepOrphans)
	return result
}

// Tables implements dataplane.Dataplane.
func (m *Mode) Tables() []dataplane.TableStatus { return m.pipeline.Tables() }

// Announced returns the manager of the routes that announce addresses.
func (m *Mode) Announced() *announce.Manager { return m.announced }

// Announcement implements dataplane.Announcer.
func (m *Mode) Announcement(a netip.Addr) *dataplane.Announcement { return m.announced.Announcement(a) }

// Clear implements dataplane.Removable: no row is wanted any more.
func (m *Mode) Clear() {
	m.takeover.Clear()
	m.pickup.clear()
	m.addresses.Clear()
	m.change(m.frontends.Clear())
	m.sets.Clear()
	m.chains.Clear()
}

// HandOver returns the mode as a clean-up that leaves to a target the rows that it uses.
func (m *Mode) HandOver(to migrate.Target) dataplane.Removable { return m.handoff.To(to, m) }

// Remove deletes the device, with any address that is left on it.
func (m *Mode) Remove(ctx context.Context) error {
	if err := m.deps.Links.Remove(ctx); err != nil {
		return fmt.Errorf("remove kube-ipvs0: %w", err)
	}
	return nil
}
