package ipvs

import (
	"net/netip"
	"slices"

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

// Own tells whether a virtual server is ours.
func (m *Marks) Own(k vserver.ServerKey) bool {
	if (Config{ExcludeCIDRs: m.Excluded}).excluded(k.Addr) {
		return false
	}
	there := func(k memberKey) bool { _, ok := m.entries[k]; return ok }
	_, bound := m.Bound[k.Addr]
	_, local := m.Links[k.Addr]
	_, told := m.sets[setName(model.FamilyOf(k.Addr), setNodePortIPs)]
	local = local && !told // see named
	return bound || there(markOf(k.Addr)) || named(k, local, there)
}
