package sets

import (
	"cmp"
	"maps"
	"slices"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/ipset"
)

// registry has our sets by the kernel's name, and their order.
type registry struct {
	sets  map[string]ipset.Set
	known map[string]setInfo
}

// setInfo is what the header of a set does not contain.
type setInfo struct {
	// name is the set's IPv4 name: its purpose.
	name   string
	family model.Family
	rank   int
}

func newRegistry(families []model.Family) registry {
	r := registry{sets: map[string]ipset.Set{}, known: map[string]setInfo{}}
	for i, t := range setTypes {
		for _, f := range families {
			set := ipset.Set{Name: Name(f, t.name), Type: t.kind}
			if t.kind.Hash() {
				set.Family = setFamily(f)
			}
			if t.name == Hold {
				set.Timeout = HoldSeconds
			}
			r.sets[set.Name] = set.WithDefaults()
			r.known[set.Name] = setInfo{t.name, f, i}
		}
	}
	return r
}

func setFamily(f model.Family) ipset.Family {
	if f == model.IPv6 {
		return ipset.IPv6
	}
	return ipset.IPv4
}

func (r registry) owned(name string) bool { _, ok := r.sets[name]; return ok }

func (r registry) compare(a, b string) int {
	return cmp.Or(cmp.Compare(r.known[a].rank, r.known[b].rank), cmp.Compare(a, b))
}

func (r registry) compareMembers(a, b Key) int {
	return cmp.Or(r.compare(a.Set, b.Set), a.Entry.Compare(b.Entry))
}

// All returns the sets that the mode uses, empty, for both families.
func All() []ipset.Set {
	families := model.Families()
	r := newRegistry(families[:])
	return slices.SortedFunc(maps.Values(r.sets), func(a, b ipset.Set) int { return r.compare(a.Name, b.Name) })
}

// Owned reports whether a set is one of ours, by name.
func Owned(name string) bool {
	return slices.ContainsFunc(All(), func(s ipset.Set) bool { return s.Name == name })
}

// sameSet compares headers; the kernel grows the hash of a set by itself.
func sameSet(a, b ipset.Set) bool { return a.Compatible(b) }

// sameShape reports whether the entries of two sets have the same form.
func sameShape(a, b ipset.Set) bool { return a.Type == b.Type && a.Family == b.Family }
