package iptables

import (
	"context"
	"fmt"
	"slices"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/delta"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nftables"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// foreign is what kube-proxy's nftables mode left behind. Its tables carry Services until
// the rules of this mode do (internal/DECISIONS.md, Rules of another proxy mode).
type foreign struct {
	tables  []nftables.Key
	retries int
}

// patience is how many passes may try again what is refused before those tables go all
// the same: a row that is refused for good must not keep them for ever.
const patience = 3

// mayGo tells whether the tables may go after a pass.
func (f *foreign) mayGo(done, retry bool) bool {
	switch {
	case done:
		f.retries = 0
	case retry:
		f.retries++
	}
	return done || f.retries >= patience
}

func (f foreign) serves() bool { return len(f.tables) > 0 }

// kubeProxyTable is the name of the tables of kube-proxy's nftables mode.
const kubeProxyTable = "kube-proxy"

// tableFamilies are the families of those tables, by the address family that they carry.
var tableFamilies = map[model.Family]string{model.IPv4: "ip", model.IPv6: "ip6"}

// loadForeign looks for those tables.
func (m *Mode) loadForeign(ctx context.Context) error {
	if m.deps.Tables == nil {
		return nil
	}
	found, err := m.deps.Tables.List(ctx)
	if err != nil {
		return fmt.Errorf("read nftables: %w", err)
	}
	m.foreign.tables = m.foreign.tables[:0]
	for k := range found {
		if k.Name == kubeProxyTable && slices.ContainsFunc(m.config.Families, func(f model.Family) bool { return tableFamilies[f] == k.Family }) {
			m.foreign.tables = append(m.foreign.tables, k)
		}
	}
	return nil
}

// dropForeign deletes the tables and returns how many are left.
func (m *Mode) dropForeign(ctx context.Context, r *dataplane.Result) int {
	if len(m.foreign.tables) == 0 || m.cleared {
		return 0
	}
	var out delta.Outcome
	errs := m.deps.Tables.Delete(ctx, m.foreign.tables)
	var left []nftables.Key
	for i, k := range m.foreign.tables {
		if err := at(errs, i); err != nil {
			out = out.Plus(delta.Failures(1, err))
			left = append(left, k)
			continue
		}
		out.Deletes++
		m.log.Info("table of kube-proxy's nftables mode removed", zap.Stringer("table", k))
	}
	m.foreign.tables = left
	r.Stages = append(r.Stages, dataplane.StageResult{Stage: "nftables", Outcome: out})
	return len(left)
}
