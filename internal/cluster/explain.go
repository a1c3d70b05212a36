package cluster

import (
	"context"
	"slices"

	"github.com/kube-ipvs/kube-ipvs/internal/agent"
	"github.com/kube-ipvs/kube-ipvs/internal/explain"
	"github.com/kube-ipvs/kube-ipvs/internal/inspect"
)

// Explain asks each node why a Service or an address works there, or does not.
type Explain struct {
	// Target is namespace/name or ip[:port[/protocol]]; From is the address of a client, or empty.
	Target, From string

	nodes   []nodeStatus
	reports []explained
}

// explained is the verdict of one node.
type explained struct {
	node    string
	ok      bool
	verdict []string
}

// An ExplainRow is one sentence of verdicts.
type ExplainRow struct {
	// OK reports whether nothing is wrong on these nodes.
	OK       bool     `json:"ok"`
	Sentence string   `json:"sentence"`
	Nodes    []string `json:"nodes"`
}

// mostSentences is how many sentences of one node are joined.
const mostSentences = 50

func (q *Explain) visit(ctx context.Context, ask ask) (func(Node), error) {
	s, err := askStatus(ctx, ask)
	if err != nil {
		return nil, err
	}
	args := []string{"explain", "-o", "json"}
	if q.From != "" {
		args = append(args, "--from", q.From)
	}
	e, err := decoded[explain.Report](ctx, ask, largeAnswer, append(args, q.Target)...)
	if err != nil {
		return nil, err
	}
	verdict := e.Verdict[:min(len(e.Verdict), mostSentences)]
	return func(n Node) {
		q.nodes = append(q.nodes, nodeStatus{node: n, status: agent.Status{Mode: s.Mode, About: s.About}})
		q.reports = append(q.reports, explained{n.Name, e.OK, verdict})
	}, nil
}

func (q *Explain) join(r *Report) {
	r.Verb, r.Asked = "explain", q.Target
	slices.SortFunc(q.reports, func(a, b explained) int { return compareNames(a.node, b.node) })
	rows := map[ExplainKey]*ExplainRow{}
	var order []ExplainKey
	for _, one := range q.reports {
		for i, text := range one.verdict {
			text = shortened(text)
			if !one.ok && (i == 0 || !q.toldWhereWell(text)) {
				r.find(rankKernel, one.node, "%s", text)
			}
			key := ExplainKey{one.ok, text}
			if rows[key] == nil {
				rows[key] = &ExplainRow{OK: one.ok, Sentence: text}
				order = append(order, key)
			}
			rows[key].Nodes = append(rows[key].Nodes, one.node)
		}
	}
	alike(r, q.nodes)
	list := make([]ExplainRow, 0, len(order))
	for _, key := range order {
		list = append(list, *rows[key])
	}
	slices.SortStableFunc(list, func(a, b ExplainRow) int { return len(b.Nodes) - len(a.Nodes) })
	setRows(r, list, slices.Concat(inspect.Table[ExplainRow]{
		text("WELL", func(r ExplainRow) string { return map[bool]string{true: "yes", false: "no"}[r.OK] }),
	}, nodesColumn(func(r ExplainRow) []string { return r.Nodes }), inspect.Table[ExplainRow]{
		text("VERDICT", func(r ExplainRow) string { return r.Sentence }),
	}))
}

// An ExplainKey identifies a sentence.
type ExplainKey struct {
	OK       bool
	Sentence string
}

// toldWhereWell reports whether a node on which all is well has the same sentence: it is a remark.
func (q *Explain) toldWhereWell(text string) bool {
	return slices.ContainsFunc(q.reports, func(e explained) bool {
		return e.ok && slices.ContainsFunc(e.verdict, func(t string) bool { return shortened(t) == text })
	})
}
