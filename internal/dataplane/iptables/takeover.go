package iptables

import (
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/netfilter"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nftables"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// takeover is the state of the takeover from kube-proxy's nftables mode. Its tables carry Services
// until the rules of this mode do (internal/DECISIONS.md, Rules of another proxy mode).
type takeover struct {
	// holding keeps its tables for now.
	holding bool
	retries int
	// cleared: no row is desired any more.
	cleared bool
}

// maxRetries is how many passes may retry refused rows before the tables are deleted: a row that
// is always refused must not keep them.
const maxRetries = 3

// ends reports, after a pass, whether the tables may be deleted: nothing else is pending, or
// maxRetries passes retried it.
func (t *takeover) ends(done, retry bool) bool {
	switch {
	case done:
		t.retries = 0
	case retry:
		t.retries++
	}
	t.holding = !done && t.retries < maxRetries
	return !t.holding
}

// owns reports whether a table is kube-proxy's. A clean-up does not delete it.
func (t *takeover) owns(k nftables.Key, families []model.Family) bool {
	return !t.cleared && netfilter.IsProxyTable(k, families)
}
