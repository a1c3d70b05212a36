package sets

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/kube-ipvs/kube-ipvs/ipset"
)

// oddCount is a number of entries that the kernel counts in a set of which we know so many.
type oddCount struct {
	counted uint32
	known   int
}

// CountEntries counts the entries in place of each set, by the kernel's name.
func (m *Manager) CountEntries() map[string]int {
	counts := map[string]int{}
	for k := range m.Members.Actual() {
		counts[k.Set]++
	}
	return counts
}

// Unchanged reports whether it is certain that no other program has changed the entries of a set since
// they were listed. Only nftables can know that: a kernel that does has a method of this name.
func Unchanged(ctx context.Context, kernel any, name string) bool {
	k, ok := kernel.(interface {
		Unchanged(ctx context.Context, name string) bool
	})
	return ok && k.Unchanged(ctx, name)
}

// Unchanged is Unchanged of the kernel of this manager.
func (m *Manager) Unchanged(ctx context.Context, name string) bool {
	return Unchanged(ctx, m.kernel, name)
}

// Inspect compares the entries of one set, of which count were in place when the audit began,
// and returns how many rows drifted. If the kernel lists as many and none is unknown, none is
// missing, for it lists none twice. Entries that came and went meanwhile cause a second comparison
// or, at worst, show in the next audit. The search for missing entries costs a walk over the
// entries of all sets.
func (m *Manager) Inspect(ctx context.Context, name string, count int) (int, error) {
	found, entries, err := m.kernel.List(ctx, name)
	if errors.Is(err, ipset.ErrNotExist) {
		m.lost(name)
		return 1, nil
	}
	if err != nil || !sameShape(found, m.registry.sets[name]) {
		return 0, err // the inspection of the sets finds a wrong header
	}
	drift := 0
	for _, e := range entries {
		if _, ok := m.Members.Believed(Key{name, e}); !ok {
			m.Members.SetActual(Key{name, e}, struct{}{})
			drift++
		}
	}
	if drift == 0 && len(entries) == count {
		return 0, nil
	}
	m.entries = nil
	there := make(map[ipset.Entry]struct{}, len(entries))
	for _, e := range entries {
		there[e] = struct{}{}
	}
	var gone []Key
	for k := range m.Members.Actual() {
		if _, ok := there[k.Entry]; k.Set == name && !ok {
			gone = append(gone, k)
		}
	}
	for _, k := range gone {
		m.Members.DropActual(k)
	}
	return drift + len(gone), nil
}

// Sample inspects the sets that are gone, and those whose headers count another number of entries
// (ipset.Info) than is known.
func (m *Manager) Sample(ctx context.Context) (drift int, err error) {
	infos, err := m.kernel.Stat(ctx)
	if err != nil {
		return 0, err
	}
	counted := make(map[string]uint32, len(infos))
	for _, i := range infos {
		counted[i.Set.Name] = i.Elements
	}
	if m.entries == nil {
		m.entries = m.CountEntries()
	}
	known := m.entries // Inspect drops it
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(maps.Collect(m.Sets.Actual()))) {
		n, there := counted[name]
		now := oddCount{n, known[name]}
		if !m.registry.owned(name) || there && (int(now.counted) == now.known || m.odd[name] == now) {
			continue
		}
		found, err := m.Inspect(ctx, name, -1)
		if drift += found; err != nil {
			errs = append(errs, err)
		} else if found == 0 {
			m.odd[name] = now
		}
	}
	return drift, errors.Join(errs...)
}
