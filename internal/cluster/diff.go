package cluster

import (
	"cmp"
	"context"
	"slices"

	"github.com/kube-ipvs/kube-ipvs/internal/inspect"
	"github.com/kube-ipvs/kube-ipvs/internal/linediff"
)

// Diff compares the kernel of each node with what it should hold.
type Diff struct {
	// API compares with the objects of the API server, which each node lists; else with what the agent
	// of the node wants.
	API bool

	rows map[linediff.Odd][]string
	more int
	said []nodeDiff
}

type nodeDiff struct {
	node string
	odd  []oddRows
}

// A DiffRow is a row that only the kernel has, or that it lacks, with the nodes.
type DiffRow struct {
	linediff.Odd
	Nodes []string `json:"nodes"`
}

// mostDiffRows bounds the rows of all nodes together, and of one node.
const (
	mostDiffRows   = 20000
	mostDiffOfNode = 5000
)

func (q *Diff) visit(ctx context.Context, ask ask) (func(Node), error) {
	args := []string{"diff", "-o", "json"}
	if q.API {
		args = append(args, "--source-dir=") // no manifests, so the API server is asked
	}
	d, err := decoded[linediff.Report](ctx, ask, largeAnswer, args...)
	if err != nil {
		return nil, err
	}
	return func(n Node) { q.add(n.Name, d) }, nil
}

func (q *Diff) add(node string, d linediff.Report) {
	if q.rows == nil {
		q.rows = map[linediff.Odd][]string{}
	}
	kept := d.Rows[:min(len(d.Rows), mostDiffOfNode)]
	q.more += len(d.Rows) - len(kept)
	for _, o := range kept {
		if _, there := q.rows[o]; !there && len(q.rows) >= mostDiffRows {
			q.more++
			continue
		}
		q.rows[o] = append(q.rows[o], node)
	}
	q.said = append(q.said, nodeDiff{node, summary(d)})
}

func (q *Diff) join(r *Report) {
	r.Verb = "diff"
	slices.SortFunc(q.said, func(a, b nodeDiff) int { return compareNames(a.node, b.node) })
	for _, s := range q.said {
		findOdd(r, s.node, s.odd)
	}
	rows := make([]DiffRow, 0, len(q.rows))
	for odd, nodes := range q.rows {
		slices.SortFunc(nodes, compareNames)
		rows = append(rows, DiffRow{odd, nodes})
	}
	slices.SortFunc(rows, func(a, b DiffRow) int {
		return cmp.Or(len(b.Nodes)-len(a.Nodes), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Side, b.Side), cmp.Compare(a.Row, b.Row))
	})
	r.More = q.more
	setRows(r, rows, slices.Concat(nodesColumn(func(r DiffRow) []string { return r.Nodes }), inspect.Table[DiffRow]{
		text("KIND", func(r DiffRow) string { return r.Kind }),
		text("ROW", func(r DiffRow) string {
			if r.Side == linediff.Kernel {
				return "-" + r.Row
			}
			return "+" + r.Row
		}),
	}))
}
