package ipvs

import (
	"context"
	"errors"
	"net/netip"
	"slices"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/link"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/ipset"
)

// Marks tell which virtual servers are ours, for those who read the kernel without a mode. They are what a fresh
// process goes by (Mode.ownedServer).
type Marks struct {
	// Bound are the addresses on our device, Links all others of this machine.
	Bound map[netip.Addr]struct{}
	Links map[netip.Addr]string
	// Excluded are the ranges that hold servers of others (--ipvs-exclude-cidrs).
	Excluded []netip.Prefix

	entries map[memberKey]struct{}
	sets    map[string]struct{}
}

// MarkSets names the sets that tell whose a server is, of both families.
func MarkSets() []string {
	base := append([]string{setIPVSIPs, setNodePortIPs, setNodePortTCP, setNodePortUDP}, namingSets...)
	var out []string
	for _, f := range model.Families() {
		for _, name := range base {
			out = append(out, setName(f, name))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Add brings in what one of those sets has; one that the kernel lacks is left out.
func (m *Marks) Add(set string, entries []ipset.Entry) {
	if m.entries == nil {
		m.entries, m.sets = map[memberKey]struct{}{}, map[string]struct{}{}
	}
	m.sets[set] = struct{}{}
	for _, e := range entries {
		m.entries[memberKey{set, e}] = struct{}{}
	}
}

// Own reports whether a virtual server is ours.
func (m *Marks) Own(k vserver.ServerKey) bool {
	_, bound := m.Bound[k.Addr]
	_, local := m.Links[k.Addr]
	_, told := m.sets[setName(model.FamilyOf(k.Addr), setNodePortIPs)]
	return (Config{ExcludeCIDRs: m.Excluded}).owns(k, bound, local && !told, func(k memberKey) bool {
		_, there := m.entries[k]
		return there
	})
}

// owns decides whose a virtual server is, for the mode and for every verb. A server of ours is at an
// address that is bound to our device or has a mark, or an entry of ours names it; local: see
// named. Of these a Service has some; the others are orphaned, and
// the agent deletes them. All else is foreign, and is never touched.
func (c Config) owns(k vserver.ServerKey, bound, local bool, there func(memberKey) bool) bool {
	return !c.excluded(k.Addr) && (bound || there(markOf(k.Addr)) || named(k, local, there))
}

// ReadMarks reads what tells whose a virtual server is. Nil sets are none, as where no module for
// them is loaded.
func ReadMarks(ctx context.Context, links interface {
	List(ctx context.Context) (map[netip.Addr]struct{}, error)
	Local(ctx context.Context) (map[netip.Addr]string, error)
}, sets interface {
	List(ctx context.Context, name string) (ipset.Set, []ipset.Entry, error)
}, excluded []netip.Prefix,
) (*Marks, error) {
	bound, err := links.List(ctx)
	if err != nil && !errors.Is(err, link.ErrNotExist) {
		return nil, err
	}
	local, err := links.Local(ctx)
	if err != nil {
		return nil, err
	}
	m := &Marks{Bound: bound, Links: local, Excluded: excluded}
	if sets == nil {
		return m, nil
	}
	for _, name := range MarkSets() {
		_, entries, err := sets.List(ctx, name)
		switch {
		case err == nil:
			m.Add(name, entries)
		case !errors.Is(err, ipset.ErrNotExist):
			return nil, err
		}
	}
	return m, nil
}
