package cluster

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/inspect"
	"github.com/kube-ipvs/kube-ipvs/internal/top"
)

// Top adds up what all nodes carry: by Service, or by backend of one Service.
type Top struct {
	// Service is namespace/name of the one whose backends are wanted; empty lists Services.
	Service, Namespace string
	// Interval is the time between the two samples of a node.
	Interval time.Duration
	// Limit is how many rows the report has, 0 for all.
	Limit int

	rows map[string]*TopRow
}

// A TopRow is a Service, or a backend, with the sums over nodes.
type TopRow struct {
	Namespace string `json:"namespace,omitempty"`
	// Name is the name of the Service, or the address of a virtual server without one.
	Name string `json:"name"`
	// Backend is empty in a list of Services.
	Backend string `json:"backend,omitempty"`
	// Weight is the largest that a node gives the backend.
	Weight uint16 `json:"weight,omitempty"`
	top.Rates
	Active   uint64 `json:"active"`
	Inactive uint64 `json:"inactive"`
	// Draining is how many nodes drain the backend.
	Draining int `json:"draining"`
	// Busiest is the node that carries most, and NodeSkew how many times its even share among the nodes
	// it has: by bytes, or by established connections where no bytes passed. 0 is no traffic.
	Busiest  string  `json:"busiest,omitempty"`
	NodeSkew float64 `json:"nodeSkew"`
	// BackendSkew is the largest skew between backends that a node sees.
	BackendSkew float64 `json:"backendSkew"`
	Nodes       int     `json:"nodes"`

	bytes, connections peak
}

// A peak is the largest of some values, with its node and the sum.
type peak struct {
	sum, most float64
	node      string
}

func (p *peak) add(node string, v float64) {
	p.sum += v
	if v > p.most || v == p.most && v > 0 && compareNames(node, p.node) < 0 {
		p.most, p.node = v, node
	}
}

func (q *Top) visit(ctx context.Context, ask ask) (func(Node), error) {
	args := []string{"top", "--once", "-o", "json"}
	if q.Interval > 0 {
		args = append(args, "--interval", q.Interval.String())
	}
	if q.Namespace != "" {
		args = append(args, "--namespace", q.Namespace)
	}
	if q.Service != "" {
		args = append(args, q.Service)
	}
	t, err := decoded[top.Report](ctx, ask, largeAnswer, args...)
	if err != nil && !unknown(err) {
		return nil, err
	}
	return func(n Node) { q.add(n.Name, &t) }, nil
}

func (q *Top) add(node string, t *top.Report) {
	if q.rows == nil {
		q.rows = map[string]*TopRow{}
	}
	if q.Service != "" {
		for _, b := range t.Backends {
			r := q.row(b.Address, TopRow{Name: q.Service, Backend: b.Address})
			r.count(node, b.Rates, b.Active, b.Inactive)
			r.Weight = max(r.Weight, b.Weight)
			if b.Draining {
				r.Draining++
			}
		}
		return
	}
	for _, s := range t.Services {
		r := q.row(s.Namespace+"/"+s.Name, TopRow{Namespace: s.Namespace, Name: s.Name})
		load := top.Load{}
		if s.Load != nil {
			load = *s.Load
		}
		r.count(node, s.Rates, load.Active, load.Inactive)
		r.BackendSkew = max(r.BackendSkew, load.Skew)
		if load.Draining > 0 {
			r.Draining++
		}
	}
}

func (q *Top) row(key string, is TopRow) *TopRow {
	if q.rows[key] == nil {
		q.rows[key] = &is
	}
	return q.rows[key]
}

func (r *TopRow) count(node string, rates top.Rates, active, inactive uint64) {
	r.Nodes++
	r.Connections += rates.Connections
	r.PacketsIn += rates.PacketsIn
	r.PacketsOut += rates.PacketsOut
	r.BytesIn += rates.BytesIn
	r.BytesOut += rates.BytesOut
	r.Active += active
	r.Inactive += inactive
	r.bytes.add(node, rates.BytesIn+rates.BytesOut)
	r.connections.add(node, float64(active))
}

// judge names the busiest node.
func (r *TopRow) judge() {
	p := r.bytes
	if p.sum == 0 {
		p = r.connections
	}
	if p.sum > 0 {
		r.Busiest, r.NodeSkew = p.node, p.most*float64(r.Nodes)/p.sum
	}
}

func (q *Top) join(r *Report) {
	r.Verb, r.Asked = "top", q.Service
	rows := make([]TopRow, 0, len(q.rows))
	for _, row := range q.rows {
		row.judge()
		rows = append(rows, *row)
	}
	slices.SortFunc(rows, func(a, b TopRow) int {
		return cmp.Or(cmp.Compare(b.bytes.sum, a.bytes.sum), cmp.Compare(b.Active, a.Active), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Backend, b.Backend))
	})
	if q.Limit > 0 && len(rows) > q.Limit {
		r.More = len(rows) - q.Limit
		rows = rows[:q.Limit]
	}
	setRows(r, rows, topTable(q.Service != ""))
}

func topTable(backends bool) inspect.Table[TopRow] {
	first := text("SERVICE", func(r TopRow) string {
		if r.Namespace == "" {
			return r.Name
		}
		return r.Namespace + "/" + r.Name
	})
	if backends {
		first = text("BACKEND", func(r TopRow) string { return r.Backend })
	}
	rate := func(of func(TopRow) float64) func(TopRow) string {
		return func(r TopRow) string { return scaled(of(r)) }
	}
	return inspect.Table[TopRow]{
		first,
		{Name: "WEIGHT", Text: func(r TopRow) string { return fmt.Sprint(r.Weight) }, Wide: !backends},
		text("CONN/S", rate(func(r TopRow) float64 { return r.Connections })),
		text("IN B/S", rate(func(r TopRow) float64 { return r.BytesIn })),
		text("OUT B/S", rate(func(r TopRow) float64 { return r.BytesOut })),
		wide("IN P/S", rate(func(r TopRow) float64 { return r.PacketsIn })),
		wide("OUT P/S", rate(func(r TopRow) float64 { return r.PacketsOut })),
		text("ACTIVE", func(r TopRow) string { return fmt.Sprint(r.Active) }),
		text("INACTIVE", func(r TopRow) string { return fmt.Sprint(r.Inactive) }),
		text("DRAINING", func(r TopRow) string { return fmt.Sprint(r.Draining) }),
		{Name: "SKEW", Text: func(r TopRow) string { return fmt.Sprintf("%.1f", r.BackendSkew) }, Wide: backends},
		text("NODES", func(r TopRow) string { return fmt.Sprint(r.Nodes) }),
		text("BUSIEST", func(r TopRow) string { return r.Busiest }),
		text("NODE SKEW", func(r TopRow) string { return fmt.Sprintf("%.1f", r.NodeSkew) }),
	}
}

// scaled prints a rate with a unit of thousands.
func scaled(v float64) string {
	units := []string{"", "K", "M", "G", "T"}
	i := 0
	for ; v >= 1000 && i < len(units)-1; i++ {
		v /= 1000
	}
	if i == 0 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.1f%s", v, units[i])
}
