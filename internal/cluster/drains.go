package cluster

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/inspect"
)

// Drains asks each node for its draining destinations, and for those in slow start.
type Drains struct {
	// Target is [namespace/]name, or empty for all; Namespace bounds them.
	Target, Namespace string
	// Now is the time that remaining times are measured at.
	Now func() time.Time

	rows map[drainKey]*DrainRow
	more int
}

type drainKey struct{ namespace, name, backend, state string }

// A DrainRow is one backend that drains or is in slow start on some nodes.
type DrainRow struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Backend   string `json:"backend"`
	State     string `json:"state"`
	// Active and Inactive are connections of all nodes and frontends, as they were counted last.
	Active   uint64 `json:"active"`
	Inactive uint64 `json:"inactive"`
	// Until is when the last of them ends at the latest.
	Until *time.Time `json:"until,omitempty"`
	Nodes []string   `json:"nodes"`
}

// mostDrains bounds the rows of all nodes together.
const mostDrains = 20000

func (q *Drains) visit(ctx context.Context, ask ask) (func(Node), error) {
	args := []string{"show", "draining", "-o", "json"}
	if q.Namespace != "" {
		args = append(args, "--namespace", q.Namespace)
	}
	if q.Target != "" {
		args = append(args, q.Target)
	}
	list, err := decoded[inspect.List[inspect.MovingRow]](ctx, ask, largeAnswer, args...)
	if err != nil && !unknown(err) {
		return nil, err
	}
	return func(n Node) {
		for _, left := range list.More {
			q.more += left
		}
		for i := range list.Items {
			q.add(n.Name, &list.Items[i])
		}
	}, nil
}

func (q *Drains) add(node string, m *inspect.MovingRow) {
	key := drainKey{m.Namespace, m.Name, m.Backend, m.State}
	row := q.rows[key]
	if row == nil {
		if len(q.rows) >= mostDrains {
			q.more++
			return
		}
		if q.rows == nil {
			q.rows = map[drainKey]*DrainRow{}
		}
		row = &DrainRow{Namespace: m.Namespace, Name: m.Name, Backend: m.Backend, State: m.State}
		q.rows[key] = row
	}
	if m.Active != nil {
		row.Active += uint64(*m.Active)
	}
	if m.Inactive != nil {
		row.Inactive += uint64(*m.Inactive)
	}
	if m.Until != nil && (row.Until == nil || m.Until.After(*row.Until)) {
		row.Until = m.Until
	}
	if len(row.Nodes) == 0 || row.Nodes[len(row.Nodes)-1] != node {
		row.Nodes = append(row.Nodes, node)
	}
}

func (q *Drains) join(r *Report) {
	r.Verb, r.Asked, r.More = "drain-status", q.Target, q.more
	rows := make([]DrainRow, 0, len(q.rows))
	for _, row := range q.rows {
		slices.SortFunc(row.Nodes, compareNames)
		rows = append(rows, *row)
	}
	slices.SortFunc(rows, func(a, b DrainRow) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Backend, b.Backend), cmp.Compare(a.State, b.State))
	})
	now := time.Now
	if q.Now != nil {
		now = q.Now
	}
	at := now()
	setRows(r, rows, slices.Concat(inspect.Table[DrainRow]{
		text("SERVICE", func(r DrainRow) string { return r.Namespace + "/" + r.Name }),
		text("BACKEND", func(r DrainRow) string { return r.Backend }),
		text("STATE", func(r DrainRow) string { return r.State }),
		text("ACTIVE", func(r DrainRow) string { return strconv.FormatUint(r.Active, 10) }),
		text("INACTIVE", func(r DrainRow) string { return strconv.FormatUint(r.Inactive, 10) }),
		text("LEFT", func(r DrainRow) string {
			if r.Until == nil {
				return ""
			}
			return max(r.Until.Sub(at), 0).Round(time.Second).String()
		}),
	}, nodesColumn(func(r DrainRow) []string { return r.Nodes })))
}

func decimal(n int) string { return strconv.Itoa(n) }
