package sets

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/delta"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/ipset"
)

// Kernel is the part of package ipset that the manager uses.
type Kernel interface {
	ListSets(ctx context.Context) ([]ipset.Set, error)
	Stat(ctx context.Context) ([]ipset.Info, error)
	List(ctx context.Context, name string) (ipset.Set, []ipset.Entry, error)
	CreateAll(ctx context.Context, sets ...ipset.Set) []error
	Replace(ctx context.Context, s ipset.Set, entries []ipset.Entry) error
	Destroy(ctx context.Context, name string) error
	Write(ctx context.Context, s ipset.Set, changes []ipset.Change) []error
	WriteAll(ctx context.Context, batches ...ipset.Batch) [][]error
}

// Options describe a Manager.
type Options struct {
	Log      *zap.Logger
	Kernel   Kernel
	Families []model.Family
	// HoldMember reports whether an entry has to stay for now (prerequisites.go of the mode).
	HoldMember func(Key) bool
	// Release empties the chains that refer to a set, so that the kernel lets it be replaced.
	Release func(ctx context.Context, set string) error
}

// Manager owns all sets of ours and their entries: the rows of the tables "sets" and "members".
type Manager struct {
	Sets    *delta.Table[string, ipset.Set]
	Members *delta.Table[Key, struct{}]

	log      *zap.Logger
	kernel   Kernel
	registry registry
	release  func(ctx context.Context, set string) error
	// shared counts, for each entry that several frontends have, the frontends beside the first.
	shared map[Key]int
	// health are the claims on entries of health-check ports.
	health *delta.Claims[model.ServiceID, Key, struct{}]
	// entries are how many each set should have; nil is not counted since they changed.
	entries map[string]int
	// odd are counts of the kernel that differ from ours although the entries do not.
	odd map[string]oddCount
}

// New returns a manager that wants nothing.
func New(o Options) *Manager {
	m := &Manager{
		log: o.Log, kernel: o.Kernel, registry: newRegistry(o.Families), release: o.Release,
		shared: map[Key]int{}, health: newHealthClaims(), odd: map[string]oddCount{},
	}
	m.Sets = delta.NewTable(setStore{m, o.Kernel}, delta.Options[string, ipset.Set]{
		Name: "sets", Compare: m.registry.compare, Equal: sameSet,
		Hold: func(name string, _ bool) bool { return m.holdsEntries(name) },
	})
	m.Members = delta.NewTable(&memberStore{manager: m, kernel: o.Kernel}, delta.Options[Key, struct{}]{
		Name: "members", Compare: m.registry.compareMembers, Equal: func(struct{}, struct{}) bool { return true }, Batch: 4096, KeyCodec: packedMembers,
		Hold: func(k Key, _ bool) bool { return o.HoldMember(k) },
	})
	m.Members.OnRefused(m.onRefused)
	return m
}

func newHealthClaims() *delta.Claims[model.ServiceID, Key, struct{}] {
	return delta.NewClaims[model.ServiceID, Key, struct{}](model.ServiceID.Compare)
}

// Purpose returns the IPv4 name of a set of ours, which stands for its purpose.
func (m *Manager) Purpose(set string) string { return m.registry.known[set].name }

// Family returns the family whose frontends a set of ours is for.
func (m *Manager) Family(set string) model.Family { return m.registry.known[set].family }

// Set returns a set of ours as it is wanted, by the kernel's name.
func (m *Manager) Set(name string) ipset.Set { return m.registry.sets[name] }

// Want wants all sets but those for which unused reports that no frontend needs them.
func (m *Manager) Want(unused func(name string, f model.Family) bool) {
	for name, set := range m.registry.sets {
		if known := m.registry.known[name]; unused(known.name, known.family) {
			m.Sets.DeleteDesired(name)
			continue
		}
		m.Sets.SetDesired(name, set)
	}
}

// OnChange takes the entries of one frontend from what it had to what it has; nil has none.
func (m *Manager) OnChange(before, after *model.Frontend) {
	had, has := Render(before), Render(after)
	if slices.Equal(had, has) {
		return
	}
	for _, k := range without(has, had) {
		if _, wanted := m.Members.Desired(k); wanted {
			m.shared[k]++
		}
		m.Members.SetDesired(k, struct{}{})
	}
	for _, k := range without(had, has) {
		switch m.shared[k] {
		case 0:
			m.Members.DeleteDesired(k)
		case 1:
			delete(m.shared, k)
		default:
			m.shared[k]--
		}
	}
}

// without lists the entries of one list that another has not.
func without(list, other []Key) []Key {
	if len(other) == 0 {
		return list
	}
	there := make(map[Key]struct{}, len(other))
	for _, k := range other {
		there[k] = struct{}{}
	}
	var out []Key
	for _, k := range list {
		if _, has := there[k]; !has {
			out = append(out, k)
		}
	}
	return out
}

// SetHealth opens the filter to the health-check port of a Service.
func (m *Manager) SetHealth(id model.ServiceID, h model.HealthCheck) {
	for _, e := range m.health.Set(id, healthEntries(h)) {
		m.WantEntry(e.Key, e.Held)
	}
}

func healthEntries(h model.HealthCheck) map[Key]struct{} {
	out := map[Key]struct{}{}
	for f, e := range map[model.Family]model.LocalEndpoints{model.IPv4: h.IPv4, model.IPv6: h.IPv6} {
		if h.Port != 0 && e.Served {
			out[Key{Name(f, HealthCheck), ipset.Port(h.Port)}] = struct{}{}
		}
	}
	return out
}

// SetNodePortAddrs replaces the addresses on which NodePorts answer.
func (m *Manager) SetNodePortAddrs(before, now []netip.Addr) {
	for _, a := range before {
		if !slices.Contains(now, a) {
			m.Members.DeleteDesired(NodePortIP(a))
		}
	}
	for _, a := range now {
		if m.registry.owned(NodePortIP(a).Set) {
			m.Members.SetDesired(NodePortIP(a), struct{}{})
		}
	}
}

// Has reports whether an entry is in place.
func (m *Manager) Has(k Key) bool {
	_, there := m.Members.Believed(k)
	return there
}

// WantEntry wants an entry to be there, or to be gone.
func (m *Manager) WantEntry(k Key, wanted bool) {
	if wanted {
		m.Members.SetDesired(k, struct{}{})
	} else {
		m.Members.DeleteDesired(k)
	}
}

// WriteHold adds and deletes entries of the set Hold, which are in no table: the kernel deletes
// them by itself, and what is not written is not held.
func (m *Manager) WriteHold(ctx context.Context, f model.Family, changes []ipset.Change) {
	m.kernel.Write(ctx, m.registry.sets[Name(f, Hold)], changes)
}

// Clear wants no set and no entry.
func (m *Manager) Clear() {
	for k := range maps.Collect(m.Members.AllDesired()) {
		m.Members.DeleteDesired(k)
	}
	m.health = newHealthClaims()
	for name := range maps.Collect(m.Sets.AllDesired()) {
		m.Sets.DeleteDesired(name)
	}
}

// Load reads the sets and then their entries.
func (m *Manager) Load(ctx context.Context) error {
	m.entries = nil
	if _, err := m.Sets.Load(ctx); err != nil {
		return err
	}
	_, err := m.Members.Load(ctx)
	return err
}

// OnPass is called before the rows of a pass are written.
func (m *Manager) OnPass() { m.entries = nil }

// onRefused records what the error of an entry means for its set.
func (m *Manager) onRefused(c delta.Change[Key, struct{}], err error) {
	switch {
	case errors.Is(err, ipset.ErrNotExist):
		m.lost(c.Key.Set)
	case errors.Is(err, ipset.ErrFull):
		m.grow(c.Key.Set)
	}
}

// holdsEntries reports whether a set has entries that could not be deleted yet; destroying it
// would take them away.
func (m *Manager) holdsEntries(set string) bool {
	for k := range m.Members.AllDeletes() {
		if k.Set == set {
			return true
		}
	}
	return false
}

// lost records that a set is not there any more.
func (m *Manager) lost(name string) {
	if !m.Sets.MayBeThere(name) {
		return // recorded already: each entry of a lost set is refused
	}
	m.Sets.DropActual(name)
	m.forgetMembers(name)
	m.entries = nil
}

// forgetMembers records that a set lost all its entries.
func (m *Manager) forgetMembers(set string) {
	var gone []Key
	for k := range m.Members.Actual() {
		if k.Set == set {
			gone = append(gone, k)
		}
	}
	for _, k := range gone {
		m.Members.DropActual(k)
	}
}

// entriesOf lists the entries of one set that are wanted, and those that are in place and not
// to be deleted yet.
func (m *Manager) entriesOf(set string) (wanted, rest []ipset.Entry) {
	for k := range m.Members.AllDesired() {
		if k.Set == set {
			wanted = append(wanted, k.Entry)
		}
	}
	for k := range m.Members.AllDeletes() {
		if k.Set == set {
			rest = append(rest, k.Entry)
		}
	}
	return wanted, rest
}

// raise lets a set hold at least so many entries. Sets begin with kube-proxy's
// limit, so that a node can roll back to it, and keep what they have outgrown.
func (m *Manager) raise(name string, entries uint32) {
	set := m.registry.sets[name]
	if !set.Type.Hash() || entries <= set.MaxElem {
		return
	}
	set.MaxElem = entries
	m.registry.sets[name] = set
	if _, wanted := m.Sets.Desired(name); wanted {
		m.Sets.SetDesired(name, set)
	}
}

// mostElements is the highest limit we ask for; the kernel takes 2^32 - 1.
const mostElements = 1 << 31

// grow makes a set larger that refused an entry: the stage "sets" of the next pass replaces it
// by one with room for twice what is wanted. It may be called for each entry of one pass; growth
// that is asked for already is enough.
func (m *Manager) grow(name string) {
	have, ok := m.Sets.Believed(name)
	if !ok || have.MaxElem < m.registry.sets[name].MaxElem {
		return
	}
	wanted, rest := m.entriesOf(name)
	room := 2 * max(uint64(len(wanted)+len(rest)), uint64(have.MaxElem))
	limit := uint64(max(have.MaxElem, 1))
	for limit < room && limit < mostElements {
		limit *= 2
	}
	limit = min(limit, mostElements)
	m.log.Info("set is full and will grow", zap.String("set", name), zap.Uint64("to", limit))
	m.raise(name, uint32(limit))
}
