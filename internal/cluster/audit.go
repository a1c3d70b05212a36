package cluster

import (
	"cmp"
	"context"
	"slices"

	"github.com/kube-ipvs/kube-ipvs/internal/agent"
	"github.com/kube-ipvs/kube-ipvs/internal/inspect"
)

// Audit has each agent audit its kernel now, and repair what it finds.
type Audit struct{ reports []audited }

type audited struct {
	node   string
	report agent.AuditReport
}

// An AuditRow is what audits found in one table of one node.
type AuditRow struct {
	Node string `json:"node"`
	agent.AuditTable
}

func (q *Audit) visit(ctx context.Context, ask ask) (func(Node), error) {
	a, err := decoded[agent.AuditReport](ctx, ask, smallAnswer, "audit", "-o", "json")
	if err != nil {
		return nil, err
	}
	return func(n Node) { q.reports = append(q.reports, audited{n.Name, a}) }, nil
}

func (q *Audit) join(r *Report) {
	r.Verb = "audit"
	rows := []AuditRow{}
	for _, one := range q.reports {
		for _, t := range one.report.Tables {
			t.Rows = orEmpty(t.Rows)
			rows = append(rows, AuditRow{one.node, t})
			if t.Remaining > 0 {
				r.find(rankKernel, one.node, "%s of table %s not in place after the repair: %s", count(t.Remaining, "row"), shortened(t.Table), shortened(cmp.Or(one.report.LastError, "no reason known")))
			}
		}
		if one.report.Unread != "" {
			r.find(rankState, one.node, "the audit cannot read: %s", shortened(one.report.Unread))
		}
	}
	slices.SortFunc(rows, func(a, b AuditRow) int { return cmp.Or(compareNames(a.Node, b.Node), cmp.Compare(a.Table, b.Table)) })
	number := func(name string, of func(AuditRow) int) inspect.Column[AuditRow] {
		return text(name, func(r AuditRow) string { return decimal(of(r)) })
	}
	setRows(r, rows, inspect.Table[AuditRow]{
		text("NODE", func(r AuditRow) string { return r.Node }),
		text("TABLE", func(r AuditRow) string { return r.Table }),
		number("DRIFTED", func(r AuditRow) int { return r.Found }),
		number("REMAINING", func(r AuditRow) int { return r.Remaining }),
		text("FIRST ROW", func(r AuditRow) string {
			if len(r.Rows) == 0 {
				return ""
			}
			return shortened(r.Rows[0])
		}),
	})
}
