package chains

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/netfilter"
	"github.com/kube-ipvs/kube-ipvs/internal/delta"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// Kernel is the part of kernel/rules that the manager uses.
type Kernel interface {
	netfilter.Tables
	// Generation is another one after each write by any process; 0 is not known.
	Generation(ctx context.Context) uint64
}

// Frontends are the frontends in force.
type Frontends interface {
	Get(k model.FrontendKey) (model.Frontend, bool)
}

// Order holds what chains wait for (prerequisites.go of the mode).
type Order struct {
	// Owned reports whether a chain that was found is ours.
	Owned func(netfilter.ChainKey) bool
	Wait  func(netfilter.ChainKey) bool
	Hold  func(netfilter.ChainKey) bool
}

// Options describe a Manager.
type Options struct {
	Log       *zap.Logger
	Kernel    Kernel
	Config    Config
	Frontends Frontends
	Order     Order
}

// Manager owns the rules: the rows of the tables "chains" and "jumps".
type Manager struct {
	Chains *delta.Table[netfilter.ChainKey, netfilter.Chain]
	Jumps  *delta.Table[netfilter.JumpKey, netfilter.Jump]

	log       *zap.Logger
	kernel    Kernel
	config    Config
	frontends Frontends
	owned     func(netfilter.ChainKey) bool
	detours   detours
	// read is the generation of the rules as they were read last; 0 is not known.
	read uint64
}

// allChains writes all chains in one call. Chains that are deleted refer to each other, and
// kernel/rules empties all chains of a call before it removes the first.
const allChains = 1 << 20

// New returns a manager that wants no chain.
func New(o Options) *Manager {
	return &Manager{
		Chains: delta.NewTable(netfilter.ChainStore{Rules: o.Kernel}, delta.Options[netfilter.ChainKey, netfilter.Chain]{
			Name: "chains", Compare: netfilter.ChainKey.Compare, Equal: same[netfilter.Chain], Owned: o.Order.Owned,
			Batch: allChains,
			Wait:  o.Order.Wait,
			Hold:  func(k netfilter.ChainKey, _ bool) bool { return o.Order.Hold(k) },
		}),
		Jumps: delta.NewTable(netfilter.JumpStore{Rules: o.Kernel, Jumps: Jumps}, delta.Options[netfilter.JumpKey, netfilter.Jump]{
			Name: "jumps", Compare: Jumps.Compare, Equal: same[netfilter.Jump],
		}),
		log: o.Log, kernel: o.Kernel, config: o.Config, frontends: o.Frontends, owned: o.Order.Owned,
		detours: newDetours(o.Config.Families),
	}
}

func same[V comparable](a, b V) bool { return a == b }

// Want wants the chains and jumps that every Service needs, and no extras without a need.
func (m *Manager) Want(s State) {
	for _, f := range m.config.Families {
		for k, c := range m.config.base(f, s) {
			m.Chains.SetDesired(k, c)
		}
		needs := s.Needs(f)
		for k, j := range Jumps.Rows(f, needs.Has) {
			m.Jumps.SetDesired(k, j)
		}
		for _, j := range Jumps {
			if k := netfilter.Key(f, j.Table, j.Target); !needs.Has(k) {
				m.Jumps.DeleteDesired(j.In(f))
				m.Chains.DeleteDesired(k)
			}
		}
	}
}

// OnChange follows the detour of a frontend.
func (m *Manager) OnChange(c dataplane.Change) { m.detours.onChange(c) }

// Clear wants no chain and no jump.
func (m *Manager) Clear() {
	m.detours = newDetours(nil)
	clearTable(m.Chains)
	clearTable(m.Jumps)
}

func clearTable[K comparable, V any](t *delta.Table[K, V]) {
	for k := range maps.Collect(t.AllDesired()) {
		t.DeleteDesired(k)
	}
}

// Load reads chains and jumps, which come from one listing, and returns how many rows drifted.
func (m *Manager) Load(ctx context.Context) (dataplane.Drift, error) {
	generation := m.kernel.Generation(ctx) // before, so that what comes meanwhile is read next time
	chains, leads, err := netfilter.List(ctx, m.kernel)
	if err != nil {
		return nil, fmt.Errorf("read rules: %w", err)
	}
	m.read = generation
	maps.DeleteFunc(leads, func(k netfilter.JumpKey, _ netfilter.Jump) bool { return !m.owned(netfilter.TargetOf(k)) })
	return dataplane.Drift{"chains": m.Chains.LoadRows(chains), "jumps": m.Jumps.LoadRows(leads)}, nil
}

// Inspect reads the rules again, unless the kernel reports that no process has written any since they
// were read last.
func (m *Manager) Inspect(ctx context.Context) (dataplane.Drift, error) {
	if g := m.kernel.Generation(ctx); g != 0 && g == m.read {
		return nil, nil
	}
	return m.Load(ctx)
}

// Reload reads the rules again after a sign that another process changed them.
func (m *Manager) Reload(ctx context.Context) error {
	drift, err := m.Load(ctx)
	if err == nil && drift.Total() > 0 {
		m.log.Warn("rules are missing, writing them again", zap.Any("rows", drift))
	}
	return err
}

// ReleaseSet empties our chains that refer to a set.
func (m *Manager) ReleaseSet(ctx context.Context, set string) error {
	var batch []rules.ChainChange
	for k, c := range maps.Collect(m.Chains.Actual()) {
		if c.RefersTo(k.Family, set) {
			batch = append(batch, rules.ChainChange{Op: rules.Update, Key: k})
			m.Chains.SetActual(k, netfilter.Chain{})
		}
	}
	if len(batch) == 0 {
		return nil
	}
	m.log.Warn("rules removed for a moment, because a set with the wrong type must be replaced", zap.String("table", "sets"), zap.String("set", set))
	return errors.Join(m.kernel.WriteChains(ctx, batch)...)
}
