package cluster

import (
	"cmp"
	"context"
	"slices"

	"github.com/kube-ipvs/kube-ipvs/internal/diagnosis"
	"github.com/kube-ipvs/kube-ipvs/internal/inspect"
)

// Check asks each node what it lacks to carry Services.
type Check struct {
	items map[diagnosis.Item][]string
	fit   map[string]bool
}

// A CheckRow is one answer with the nodes that gave it.
type CheckRow struct {
	diagnosis.Item
	Nodes []string `json:"nodes"`
}

// mostChecks is how many answers of one node are joined.
const mostChecks = 200

func (q *Check) visit(ctx context.Context, ask ask) (func(Node), error) {
	c, err := decoded[diagnosis.Report](ctx, ask, smallAnswer, "check", "-o", "json")
	if err != nil {
		return nil, err
	}
	return func(n Node) {
		if q.items == nil {
			q.items, q.fit = map[diagnosis.Item][]string{}, map[string]bool{}
		}
		q.fit[n.Name] = c.Fit
		for _, item := range c.Items[:min(len(c.Items), mostChecks)] {
			q.items[item] = append(q.items[item], n.Name)
		}
	}, nil
}

// severity orders states of checks, the worst first.
var severity = map[diagnosis.State]int{diagnosis.Failed: 1, diagnosis.Lacks: 2, diagnosis.Warn: 3, diagnosis.OK: 4}

func (q *Check) join(r *Report) {
	r.Verb = "check"
	rows := make([]CheckRow, 0, len(q.items))
	for item, nodes := range q.items {
		slices.SortFunc(nodes, compareNames)
		rows = append(rows, CheckRow{item, nodes})
	}
	slices.SortFunc(rows, func(a, b CheckRow) int {
		return cmp.Or(cmp.Compare(severity[a.State], severity[b.State]), len(b.Nodes)-len(a.Nodes), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Detail, b.Detail), cmp.Compare(a.Remedy, b.Remedy))
	})
	named := map[string]struct{}{}
	for _, row := range rows {
		for _, n := range row.Nodes {
			if !q.fit[n] && (row.State == diagnosis.Lacks || row.State == diagnosis.Failed) {
				r.find(rankState, n, "cannot carry Services: %s: %s: %s", row.Name, row.State, shortened(row.Detail))
				named[n] = struct{}{}
			}
		}
	}
	for n, fit := range q.fit {
		if _, told := named[n]; !fit && !told {
			r.find(rankState, n, "cannot carry Services")
		}
	}
	setRows(r, rows, slices.Concat(inspect.Table[CheckRow]{
		text("CHECK", func(r CheckRow) string { return r.Name }),
		{Name: "STATE", Text: func(r CheckRow) string { return string(r.State) }, Tone: func(r CheckRow) inspect.Tone {
			return map[diagnosis.State]inspect.Tone{diagnosis.OK: inspect.Good, diagnosis.Warn: inspect.Notable, diagnosis.Lacks: inspect.Bad, diagnosis.Failed: inspect.Bad}[r.State]
		}},
	}, nodesColumn(func(r CheckRow) []string { return r.Nodes }), inspect.Table[CheckRow]{
		text("DETAIL", func(r CheckRow) string { return shortened(r.Detail) }),
		wide("REMEDY", func(r CheckRow) string { return shortened(r.Remedy) }),
	}))
}
