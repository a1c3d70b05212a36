package ipvs

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
)

// sampledServers is how many virtual servers a sample reads: each second of a node with few
// shows all of them, and where half of many are lost one sample in 256 does not show it.
const sampledServers = 8

// sample is what the mode keeps from one sample to the next.
type sample struct {
	// entries are how many each set should have; nil is not counted since they changed.
	entries map[string]int
	// odd are counts of the kernel's that differ from ours although the entries do not.
	odd map[string]oddCount
}

// oddCount is how many entries the kernel counts in a set of which we know so many.
type oddCount struct {
	counted uint32
	known   int
}

// Sample implements dataplane.Auditor. It compares how many entries each set has, which
// the headers of sets carry (ipset.Info), and some virtual servers, chosen at random.
func (m *Mode) Sample(ctx context.Context) (dataplane.Sampled, error) {
	_, untuned := m.retune(ctx)
	entries, unlisted := m.sampleSets(ctx)
	servers, unread := m.inspectServers(ctx, m.someServers())
	out := dataplane.Sampled{Drift: dataplane.Drift{}, Doubt: servers.Total() > 0}
	servers["members"] = entries
	for table, n := range servers {
		if n > 0 {
			out.Drift[table] = n
		}
	}
	if out.Doubt {
		m.inspections = m.round(true)
	}
	return out, errors.Join(untuned, unlisted, unread)
}

// someServers chooses from those believed to be there.
func (m *Mode) someServers() []vserver.ServerKey {
	keys := make([]vserver.ServerKey, 0, sampledServers)
	for k := range m.servers.Actual() { // Go begins to go over a map at a random place
		if keys = append(keys, k); len(keys) == sampledServers {
			break
		}
	}
	return keys
}

// sampleSets has the sets read whose headers do not count as many entries as are believed to
// be there, and those that are gone.
func (m *Mode) sampleSets(ctx context.Context) (drift int, err error) {
	infos, err := m.deps.Sets.Stat(ctx)
	if err != nil {
		return 0, err
	}
	counted := make(map[string]uint32, len(infos))
	for _, i := range infos {
		counted[i.Set.Name] = i.Elements
	}
	if m.sample.entries == nil {
		m.sample.entries = m.countEntries()
	}
	known := m.sample.entries // which the first look at a set forgets
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(maps.Collect(m.sets.Actual()))) {
		n, there := counted[name]
		now := oddCount{n, known[name]}
		if _, ours := m.catalogue.sets[name]; !ours || there && (int(now.counted) == now.known || m.sample.odd[name] == now) {
			continue
		}
		found, err := m.inspectSet(ctx, name, -1)
		if drift += found; err != nil {
			errs = append(errs, err)
		} else if found == 0 {
			m.sample.odd[name] = now
		}
	}
	return drift, errors.Join(errs...)
}
