package ownership

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

// Snapshot has the rows of the kernel at one moment, for callers that decide without a mode.
type Snapshot struct {
	// Bound are the addresses on our device, Links all others of this machine, with the link
	// of each.
	Bound map[netip.Addr]struct{}
	Links map[netip.Addr]string
	// Excluded are ranges with servers of others (--ipvs-exclude-cidrs).
	Excluded []netip.Prefix

	sets map[string]map[ipset.Entry]struct{}
}

// SetNames lists the sets that a Snapshot needs, of both families, sorted.
func SetNames() []string {
	base := append([]string{Addresses, NodePortIPs, NodePortTCP, NodePortUDP}, naming...)
	var out []string
	for _, f := range model.Families() {
		for _, name := range base {
			out = append(out, SetName(f, name))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Add brings in what one of those sets has. A set that the kernel lacks is left out.
func (s *Snapshot) Add(set string, entries []ipset.Entry) {
	if s.sets == nil {
		s.sets = map[string]map[ipset.Entry]struct{}{}
	}
	s.sets[set] = make(map[ipset.Entry]struct{}, len(entries))
	for _, e := range entries {
		s.sets[set][e] = struct{}{}
	}
}

// Owns decides whether a virtual server is ours.
func (s *Snapshot) Owns(k vserver.ServerKey) bool {
	f := Facts{
		Excluded: s.Excluded,
		Bound:    func(a netip.Addr) bool { return has(s.Bound, a) },
		OnLink:   func(a netip.Addr) bool { return has(s.Links, a) },
		HasSet:   func(set string) bool { return has(s.sets, set) },
		Has:      func(set string, e ipset.Entry) bool { return has(s.sets[set], e) },
	}
	return f.Owns(k)
}

func has[K comparable, V any](m map[K]V, k K) bool {
	_, there := m[k]
	return there
}

// Links is the part of kernel/link that Read uses.
type Links interface {
	List(ctx context.Context) (map[netip.Addr]struct{}, error)
	Local(ctx context.Context) (map[netip.Addr]string, error)
}

// Sets is the part of ipset that Read uses.
type Sets interface {
	List(ctx context.Context, name string) (ipset.Set, []ipset.Entry, error)
}

// Read makes a snapshot. Nil sets are a kernel without sets.
func Read(ctx context.Context, links Links, sets Sets, excluded []netip.Prefix) (*Snapshot, error) {
	bound, err := links.List(ctx)
	if err != nil && !errors.Is(err, link.ErrNotExist) {
		return nil, err
	}
	local, err := links.Local(ctx)
	if err != nil {
		return nil, err
	}
	s := &Snapshot{Bound: bound, Links: local, Excluded: excluded}
	if sets == nil {
		return s, nil
	}
	for _, name := range SetNames() {
		_, entries, err := sets.List(ctx, name)
		switch {
		case err == nil:
			s.Add(name, entries)
		case !errors.Is(err, ipset.ErrNotExist):
			return nil, err
		}
	}
	return s, nil
}
