package ipvs

import (
	"net/netip"
	"slices"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/addresses"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/sets"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/ipset"
)

// AllSets returns the sets that the mode uses, empty, for both families.
func AllSets() []ipset.Set { return sets.All() }

// OwnedSet reports whether a set is one of ours, by name.
func OwnedSet(name string) bool { return sets.Owned(name) }

// Binding says how service addresses become local to this machine (--vip-binding).
type Binding = addresses.Binding

// The bindings.
const (
	BindAddress = addresses.BindAddress
	BindRoute   = addresses.BindRoute
)

// pick returns a if yes is true, else b.
func pick[T any](yes bool, a, b T) T {
	if yes {
		return a
	}
	return b
}

// ofFamily returns the ranges of a family.
func ofFamily(f model.Family, ranges []netip.Prefix) []netip.Prefix {
	return slices.DeleteFunc(slices.Clone(ranges), func(p netip.Prefix) bool { return model.FamilyOf(p.Addr()) != f })
}
