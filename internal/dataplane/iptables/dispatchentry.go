package iptables

import (
	"cmp"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/netfilter"
)

// entry is a rule of a dispatch chain.
type entry struct {
	chain netfilter.ChainKey
	rule  netfilter.Line
}

// target returns the chain that an entry leads to. It is no chain of a Service if the entry is a
// verdict.
func (e entry) target() netfilter.ChainKey {
	return netfilter.ChainKey{Family: e.chain.Family, Table: e.chain.Table, Name: e.rule.JumpsTo()}
}

func compareEntries(a, b entry) int {
	return cmp.Or(a.chain.Compare(b.chain), a.rule.Compare(b.rule))
}

// String names an entry in what is pending.
func (e entry) String() string { return e.chain.String() + " " + e.rule.String() }

// has reports whether a set has a key.
func has[K comparable](set map[K]struct{}, k K) bool {
	_, ok := set[k]
	return ok
}

// at returns the error of a row; nil is no error of any row.
func at(errs []error, i int) error {
	if i < len(errs) {
		return errs[i]
	}
	return nil
}
