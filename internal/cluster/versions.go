package cluster

import (
	"cmp"
	"context"
	"slices"

	"github.com/kube-ipvs/kube-ipvs/internal/inspect"
	"github.com/kube-ipvs/kube-ipvs/internal/version"
)

// Versions asks each node for the release of its agent.
type Versions struct{ nodes map[version.Details][]string }

// A VersionRow is one release with the nodes that run it.
type VersionRow struct {
	version.Details
	Nodes []string `json:"nodes"`
}

func (q *Versions) visit(ctx context.Context, ask ask) (func(Node), error) {
	d, err := decoded[version.Details](ctx, ask, smallAnswer, "version", "-o", "json")
	if err != nil {
		return nil, err
	}
	return func(n Node) {
		if q.nodes == nil {
			q.nodes = map[version.Details][]string{}
		}
		q.nodes[d] = append(q.nodes[d], n.Name)
	}, nil
}

func (q *Versions) join(r *Report) {
	r.Verb = "versions"
	var release ballot
	rows := make([]VersionRow, 0, len(q.nodes))
	for d, nodes := range q.nodes {
		slices.SortFunc(nodes, compareNames)
		rows = append(rows, VersionRow{d, nodes})
		for _, n := range nodes {
			release.add(d.Version, n)
		}
	}
	slices.SortFunc(rows, func(a, b VersionRow) int {
		return cmp.Or(len(b.Nodes)-len(a.Nodes), cmp.Compare(a.Version, b.Version), cmp.Compare(a.Commit, b.Commit), cmp.Compare(a.Platform, b.Platform), cmp.Compare(a.Go, b.Go))
	})
	r.vote("version", &release, func(node, value, most string, have, of int) {
		r.find(rankDiffer, node, "runs version %s; %d of %d nodes run %s", orUnknown(value), have, of, most)
	})
	setRows(r, rows, slices.Concat(inspect.Table[VersionRow]{
		text("VERSION", func(r VersionRow) string { return r.Version }),
		text("COMMIT", func(r VersionRow) string { return r.Commit[:min(12, len(r.Commit))] }),
		text("PLATFORM", func(r VersionRow) string { return r.Platform }),
		wide("GO", func(r VersionRow) string { return r.Go }),
	}, nodesColumn(func(r VersionRow) []string { return r.Nodes })))
}
