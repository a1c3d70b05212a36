package ipvs

import (
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/sets"
	"github.com/kube-ipvs/kube-ipvs/ipset"
)

// AllSets returns the sets that the mode uses, empty, for both families.
func AllSets() []ipset.Set { return sets.All() }

// OwnedSet reports whether a set is one of ours, by name.
func OwnedSet(name string) bool { return sets.Owned(name) }

// pick returns a if yes is true, else b.
func pick[T any](yes bool, a, b T) T {
	if yes {
		return a
	}
	return b
}
