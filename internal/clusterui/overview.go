package clusterui

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/cluster"
)

// overview is what nodes answered.
type overview struct {
	At       time.Time
	Status   cluster.Report
	Services cluster.Report
}

// grid returns the first page.
func (s *Server) grid(req *http.Request) (document, error) {
	o, err := s.overview.get(s.every, func() (overview, error) {
		status, err := s.asked(req.Context(), &cluster.Status{})
		if err != nil {
			return overview{}, err
		}
		services, err := s.asked(req.Context(), &cluster.Services{})
		return overview{time.Now(), status, services}, err
	})
	if err != nil {
		return nil, err
	}
	return gridOf(o, req.URL.Query().Get("q"), req.URL.Query().Get("page"), s.every), nil
}

// gridPage is the first page.
type gridPage struct {
	Title, At, Verdict string
	Seconds            int
	Common             []cluster.Fact
	Problems           []problem
	More               int
	Columns            []column
	Rows               []gridRow
	Query              string
	Page, Pages        int
	Total              int
}

// A problem is a sentence about nodes.
type problem struct{ Nodes, What string }

// A column is a node, or many nodes that are alike.
type column struct {
	Name, State string
	nodes       []string
}

// A gridRow is a Service.
type gridRow struct {
	Service, Ports string
	Cells          []cell
}

// A cell is the state of a Service on the nodes of a column.
type cell struct{ State, Class string }

// Limits of a page.
const (
	mostColumns  = 30
	mostRows     = 100
	mostProblems = 50
)

func gridOf(o overview, query, page string, every time.Duration) gridPage {
	g := gridPage{
		Title: "kube-ipvs: nodes and Services", At: at(o.At), Verdict: o.Status.Verdict, Seconds: max(int(every.Seconds()), 1), Common: o.Status.Common, Query: query,
	}
	g.Problems, g.More = problemsOf(o.Status, o.Services)
	g.Columns = columnsOf(o)
	var rows []cluster.ServiceRow
	for _, item := range o.Services.Items {
		if r, ok := item.(cluster.ServiceRow); ok && strings.Contains(r.Namespace+"/"+r.Name, query) {
			rows = append(rows, r)
		}
	}
	slices.SortStableFunc(rows, func(a, b cluster.ServiceRow) int { return rank(a) - rank(b) })
	g.Total = len(rows)
	g.Pages = max((len(rows)+mostRows-1)/mostRows, 1)
	g.Page, _ = strconv.Atoi(page) // no number is the first page
	g.Page = min(max(g.Page, 1), g.Pages)
	first := (g.Page - 1) * mostRows
	for _, r := range rows[first:min(first+mostRows, len(rows))] {
		g.Rows = append(g.Rows, rowOf(r, g.Columns))
	}
	return g
}

// rank orders Services that are not the same everywhere first.
func rank(r cluster.ServiceRow) int {
	switch {
	case len(r.States) > 1:
		return 0
	case len(r.States) == 1 && r.States[0].State != "serving":
		return 1
	}
	return 2
}

// problemsOf lists silent nodes and findings, each once.
func problemsOf(reports ...cluster.Report) (out []problem, more int) {
	for _, r := range reports {
		for _, s := range r.Silent {
			p := problem{s.Node, "has not answered: " + s.Why}
			if !slices.Contains(out, p) {
				out = append(out, p)
			}
		}
	}
	for _, r := range reports {
		for _, f := range r.Findings {
			out = append(out, problem{first(f.Nodes), f.What})
		}
	}
	if len(out) > mostProblems {
		return out[:mostProblems], len(out) - mostProblems
	}
	return out, 0
}

// first lists the first of many names.
func first(names []string) string {
	const most = 5
	if len(names) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}

// columnsOf returns a column for each node, those with findings first. Of many nodes the rest share a
// column.
func columnsOf(o overview) (out []column) {
	var rest []string
	for _, item := range o.Status.Items {
		r, ok := item.(cluster.StatusRow)
		switch {
		case !ok:
		case len(out) < mostColumns:
			state := string(r.State)
			if r.Findings > 0 && r.State != cluster.NoAnswer {
				state += ", " + strconv.Itoa(r.Findings) + map[bool]string{true: " finding", false: " findings"}[r.Findings == 1]
			}
			out = append(out, column{Name: r.Node, State: state, nodes: []string{r.Node}})
		default:
			rest = append(rest, r.Node)
		}
	}
	if len(rest) > 0 {
		out = append(out, column{Name: fmt.Sprintf("%d other nodes", len(rest)), nodes: rest})
	}
	return out
}

func rowOf(r cluster.ServiceRow, columns []column) gridRow {
	on := map[string]string{}
	for _, s := range r.States {
		for _, n := range s.Nodes {
			on[n] = string(s.State)
		}
	}
	name := r.Namespace + "/" + r.Name
	row := gridRow{Service: name, Ports: strings.Join(r.Ports, ", ")}
	for _, c := range columns {
		row.Cells = append(row.Cells, cellOf(c, on))
	}
	return row
}

// cellOf returns the state that all nodes of a column have, or mixed.
func cellOf(c column, on map[string]string) cell {
	state := ""
	for i, n := range c.nodes {
		s := on[n]
		if s == "" {
			s = "no answer"
		}
		if i > 0 && s != state {
			return cell{"mixed", "notable"}
		}
		state = s
	}
	class := map[string]string{"serving": "good", "noted": "notable", "skipped": "notable", "no answer": "unknown"}[state]
	if class == "" {
		class = "bad"
	}
	return cell{state, class}
}
