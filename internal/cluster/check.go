package cluster

import (
	"cmp"
	"context"
	"slices"

	"github.com/kube-ipvs/kube-ipvs/internal/inspect"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/tune"
)

// Check asks each node what it lacks to carry Services.
type Check struct {
	items map[tune.Item][]string
	fit   map[string]bool
}

// A CheckRow is one answer with the nodes that gave it.
type CheckRow struct {
	tune.Item
	Nodes []string `json:"nodes"`
}

// mostChecks is how many answers of one node are joined.
const mostChecks = 200

func (q *Check) visit(ctx context.Context, ask ask) (func(Node), error) {
	c, err := decoded[tune.Report](ctx, ask, smallAnswer, "check", "-o", "json")
	if err != nil {
		return nil, err
	}
	return func(n Node) {
		if q.items == nil {
			q.items, q.fit = map[tune.Item][]string{}, map[string]bool{}
		}
		q.fit[n.Name] = c.Fit
		for _, item := range c.Items[:min(len(c.Items), mostChecks)] {
			q.items[item] = append(q.items[item], n.Name)
		}
	}, nil
}

// severity orders states of checks, the worst first.
var severity = map[tune.State]int{tune.Failed: 1, tune.Lacks: 2, tune.Warn: 3, tune.OK: 4}

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
			if !q.fit[n] && (row.State == tune.Lacks || row.State == tune.Failed) {
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
			return map[tune.State]inspect.Tone{tune.OK: inspect.Good, tune.Warn: inspect.Notable, tune.Lacks: inspect.Bad, tune.Failed: inspect.Bad}[r.State]
		}},
	}, nodesColumn(func(r CheckRow) []string { return r.Nodes }), inspect.Table[CheckRow]{
		text("DETAIL", func(r CheckRow) string { return shortened(r.Detail) }),
		wide("REMEDY", func(r CheckRow) string { return shortened(r.Remedy) }),
	}))
}
