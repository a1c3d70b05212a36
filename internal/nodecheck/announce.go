package nodecheck

import (
	"context"
	"errors"
	"fmt"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/announce"
	"github.com/kube-ipvs/kube-ipvs/internal/diagnosis"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/link"
)

// announceCheck returns the check of the routing table that announces addresses. rulesTo returns the priorities of the routing
// rules that lead to a table.
func announceCheck(table uint32, rulesTo func(ctx context.Context, table uint32) ([]uint32, error)) diagnosis.Check {
	return diagnosis.Check{Name: "announced addresses", Fix: "run as root, in the network namespace of the host", Run: func(ctx context.Context) error {
		rules, err := rulesTo(ctx, table)
		if err != nil {
			return err
		}
		if why := announce.Misused(table, rules); why != "" {
			return diagnosis.Remedied(diagnosis.Warning(errors.New(why+": the agent announces no address")),
				fmt.Sprintf("choose a table that no routing rule leads to (--announce-table), or delete the rules that ip rule list table %d and ip -6 rule list table %[1]d show", table))
		}
		return diagnosis.Note("no routing rule leads to table %d", table)
	}}
}

// rulesTo asks the kernel for the rules that lead to a table.
func rulesTo(ctx context.Context, table uint32) ([]uint32, error) {
	h, err := link.New(zap.NewNop(), link.Options{})
	if err != nil {
		return nil, err
	}
	defer h.Close()
	return h.RulesTo(ctx, table)
}
