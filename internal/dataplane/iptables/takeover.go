package iptables

import (
	"context"
	"fmt"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/netfilter"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nftables"
)

// takeover is what is known of kube-proxy's nftables mode, whose tables carry Services until
// the rules of this mode do (internal/DECISIONS.md, Rules of another proxy mode).
type takeover struct {
	// holding: its tables stay for now.
	holding bool
	retries int
}

// patience is how many passes may try again what is refused before those tables go all
// the same: a row that is refused for good must not keep them for ever.
const patience = 3

// ends reports, after a pass, whether the tables may go: all else is done, or was tried often
// enough.
func (t *takeover) ends(done, retry bool) bool {
	switch {
	case done:
		t.retries = 0
	case retry:
		t.retries++
	}
	t.holding = !done && t.retries < patience
	return !t.holding
}

// ownedTable reports whether a table is kube-proxy's. A clean-up leaves it alone.
func (m *Mode) ownedTable(k nftables.Key) bool {
	return !m.cleared && netfilter.IsProxyTable(k, m.config.Families)
}

// loadTables looks for those tables.
func (m *Mode) loadTables(ctx context.Context) error {
	if _, err := m.tables.Load(ctx); err != nil {
		return fmt.Errorf("look for kube-proxy's tables: %w", err)
	}
	return nil
}
