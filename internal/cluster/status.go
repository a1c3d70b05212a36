package cluster

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/agent"
	"github.com/kube-ipvs/kube-ipvs/internal/inspect"
	"github.com/kube-ipvs/kube-ipvs/internal/linediff"
	"github.com/kube-ipvs/kube-ipvs/internal/version"
)

// Status asks each node for the state of its agent, and compares its kernel with what it wants.
type Status struct {
	// Quick leaves out the comparison.
	Quick bool
	// Now is the time that ages are measured at.
	Now func() time.Time

	nodes []nodeStatus
}

// A StatusRow is one node.
type StatusRow struct {
	Node      string `json:"node"`
	Pod       string `json:"pod"`
	State     State  `json:"state"`
	Mode      string `json:"mode,omitempty"`
	Version   string `json:"version,omitempty"`
	Kernel    string `json:"kernel,omitempty"`
	Scheduler string `json:"scheduler,omitempty"`
	Services  int    `json:"services"`
	// Pending rows are not written yet. Odd rows are those that only the kernel has or that it lacks,
	// absent where they were not compared. Drifted counts those that audits found so far.
	Pending   int        `json:"pending"`
	Odd       *int       `json:"odd,omitempty"`
	Drifted   uint64     `json:"drifted"`
	LastAudit *time.Time `json:"lastAudit,omitempty"`
	// Findings is how many sentences are about this node.
	Findings int `json:"findings"`
}

// State is the state of an agent.
type State string

// The states.
const (
	Serving  State = "serving"   // all that is desired was in the kernel once
	Filling  State = "filling"   // it writes the kernel for the first time
	Waiting  State = "waiting"   // its sources have not delivered yet
	Failing  State = "failing"   // rows are refused
	NoAnswer State = "no answer" // it has not answered
)

// nodeStatus is the answer of one node.
type nodeStatus struct {
	node   Node
	status agent.Status
	// odd are its odd rows, count all of them; noDiff is why they are not known.
	odd      []oddRows
	compared bool
	count    int
	noDiff   error
}

func (q *Status) visit(ctx context.Context, ask ask) (func(Node), error) {
	s, err := askStatus(ctx, ask)
	if err != nil {
		return nil, err
	}
	one := nodeStatus{status: s}
	if !q.Quick {
		if d, err := decoded[linediff.Report](ctx, ask, largeAnswer, "diff", "-o", "json"); err != nil {
			one.noDiff = err
		} else {
			one.odd, one.count, one.compared = summary(d), len(d.Rows), true
		}
	}
	return func(n Node) {
		one.node = n
		q.nodes = append(q.nodes, one)
	}, nil
}

// askStatus returns the status of an agent, with the release of one that does not report it.
func askStatus(ctx context.Context, ask ask) (agent.Status, error) {
	s, err := decoded[agent.Status](ctx, ask, smallAnswer, "show", "status", "-o", "json")
	if err != nil || s.Version != "" {
		return s, err
	}
	if d, err := decoded[version.Details](ctx, ask, smallAnswer, "version", "-o", "json"); err == nil {
		s.Version = d.Version
	}
	return s, nil
}

func (q *Status) join(r *Report) {
	r.Verb = "status"
	rows := make([]StatusRow, 0, r.Nodes)
	for i := range q.nodes {
		one := &q.nodes[i]
		one.find(r)
		rows = append(rows, one.row())
	}
	alike(r, q.nodes)
	found := r.findingsOf()
	for i := range rows {
		rows[i].Findings = found[rows[i].Node]
	}
	for _, s := range r.Silent {
		rows = append(rows, StatusRow{Node: s.Node, Pod: s.Pod, State: NoAnswer, Findings: 1})
	}
	slices.SortFunc(rows, func(a, b StatusRow) int {
		return cmp.Or(compareBool(b.State == NoAnswer, a.State == NoAnswer), compareBool(b.Findings > 0, a.Findings > 0), compareNames(a.Node, b.Node))
	})
	now := time.Now
	if q.Now != nil {
		now = q.Now
	}
	setRows(r, rows, statusTable(now(), r.Common))
}

// alike compares mode, release, scheduler and kernel of all nodes. Kernels may differ.
func alike(r *Report, nodes []nodeStatus) {
	var mode, release, scheduler, kernel ballot
	for _, n := range nodes {
		mode.add(n.status.Mode, n.node.Name)
		release.add(n.status.Version, n.node.Name)
		kernel.add(n.status.Kernel, n.node.Name)
		if n.status.Scheduler != "" { // older agents do not report it
			scheduler.add(n.status.Scheduler, n.node.Name)
		}
	}
	r.vote("mode", &mode, func(node, value, most string, have, of int) {
		r.find(rankDiffer, node, "is in %s mode; %d of %d nodes are in %s mode", orUnknown(value), have, of, most)
	})
	r.vote("version", &release, func(node, value, most string, have, of int) {
		r.find(rankDiffer, node, "runs version %s; %d of %d nodes run %s", orUnknown(value), have, of, most)
	})
	r.vote("scheduler", &scheduler, func(node, value, most string, have, of int) {
		r.find(rankDiffer, node, "has the default scheduler %s; %d of %d nodes have %s", value, have, of, most)
	})
	r.vote("kernel", &kernel, func(string, string, string, int, int) {})
}

func orUnknown(value string) string { return cmp.Or(value, "an unknown") }

// find records what is wrong on one node.
func (n *nodeStatus) find(r *Report) {
	s, name := n.status, n.node.Name
	findOdd(r, name, n.odd)
	switch state := n.state(); {
	case state == Failing:
		r.find(rankState, name, "%d rows are pending, because the kernel refuses rows: %s", pending(s), shortened(cmp.Or(s.LastError, "no reason known")))
	case state != Serving:
		r.find(rankState, name, "is not ready: %s", map[State]string{Waiting: "its sources have not delivered all objects", Filling: "it fills the kernel"}[state])
	case !s.Healthy:
		r.find(rankState, name, "is not healthy")
	}
	for _, what := range s.Unreadable {
		r.find(rankState, name, "input cannot be read, and its last good content is served: %s", shortened(what))
	}
	if s.AuditError != "" {
		r.find(rankState, name, "the audit cannot read: %s", shortened(s.AuditError))
	}
	if s.SweepError != "" {
		r.find(rankState, name, "rows of the other mode stay: %s", shortened(s.SweepError))
	}
	if n.noDiff != nil {
		r.find(rankWorthy, name, "its kernel cannot be compared with what it wants: %s", shortened(n.noDiff.Error()))
	}
}

// oddRows are the rows of one kind that only one side has.
type oddRows struct {
	kind  string
	side  linediff.Side
	n     int
	first string
}

// summary returns the odd rows of a node by kind and side.
func summary(d linediff.Report) (out []oddRows) {
	for _, o := range d.Rows {
		i := slices.IndexFunc(out, func(g oddRows) bool { return g.kind == o.Kind && g.side == o.Side })
		if i < 0 {
			if len(out) == mostKinds {
				continue
			}
			i = len(out)
			out = append(out, oddRows{kind: shortened(o.Kind), side: o.Side, first: shortened(o.Row)})
		}
		out[i].n++
	}
	return out
}

// mostKinds is above the number of kinds and sides that a node has.
const mostKinds = 16

// findOdd records odd rows, a finding for each kind.
func findOdd(r *Report, node string, odd []oddRows) {
	for _, g := range odd {
		what := "the kernel lacks"
		if g.side == linediff.Kernel {
			what = "the kernel has orphaned"
		}
		r.find(rankKernel, node, "%s %s of %s: %s%s", what, count(g.n, "row"), g.kind, g.first, further(g.n))
	}
}

func further(n int) string {
	if n > 1 {
		return ", ..."
	}
	return ""
}

func (n *nodeStatus) state() State {
	switch s := n.status; {
	case !s.Synced || !s.Complete && !s.Ready:
		return Waiting
	case s.Failures > 0 && pending(s) > 0:
		return Failing
	case !s.Ready:
		return Filling
	}
	return Serving
}

func pending(s agent.Status) (n int) {
	for _, t := range s.Tables {
		n += t.Updates + t.Deletes
	}
	return n
}

func (n *nodeStatus) row() StatusRow {
	s := n.status
	row := StatusRow{
		Node: n.node.Name, Pod: n.node.Pod, State: n.state(), Mode: s.Mode, Version: s.Version, Kernel: s.Kernel, Scheduler: s.Scheduler,
		Services: s.Services, Pending: pending(s), Drifted: s.Drifted,
	}
	if n.compared {
		row.Odd = &n.count
	}
	if s.LastAudit != nil {
		row.LastAudit = &s.LastAudit.Ended
	}
	return row
}

// statusTable leaves out columns that all nodes agree on, but for -o wide.
func statusTable(now time.Time, common []Fact) inspect.Table[StatusRow] {
	differs := func(name string, of func(StatusRow) string) inspect.Column[StatusRow] {
		agreed := slices.ContainsFunc(common, func(f Fact) bool { return f.Name == name })
		return inspect.Column[StatusRow]{Name: map[string]string{"mode": "MODE", "version": "VERSION", "scheduler": "SCHEDULER", "kernel": "KERNEL"}[name], Text: of, Wide: agreed}
	}
	return inspect.Table[StatusRow]{
		text("NODE", func(r StatusRow) string { return r.Node }),
		{Name: "STATE", Text: func(r StatusRow) string { return string(r.State) }, Tone: func(r StatusRow) inspect.Tone {
			return map[State]inspect.Tone{Serving: inspect.Good, Filling: inspect.Notable, Waiting: inspect.Notable}[r.State] + map[State]inspect.Tone{Failing: inspect.Bad, NoAnswer: inspect.Bad}[r.State]
		}},
		differs("mode", func(r StatusRow) string { return r.Mode }),
		differs("version", func(r StatusRow) string { return r.Version }),
		text("SERVICES", numberUnless(func(r StatusRow) int { return r.Services })),
		text("PENDING", numberUnless(func(r StatusRow) int { return r.Pending })),
		text("ODD", func(r StatusRow) string {
			if r.Odd == nil {
				return ""
			}
			return strconv.Itoa(*r.Odd)
		}),
		text("DRIFTED", numberUnless(func(r StatusRow) int { return int(r.Drifted) })), //nolint:gosec // a count of rows
		text("AUDIT", func(r StatusRow) string { return age(now, r.LastAudit) }),
		differs("scheduler", func(r StatusRow) string { return r.Scheduler }),
		differs("kernel", func(r StatusRow) string { return r.Kernel }),
		text("FINDINGS", func(r StatusRow) string { return strconv.Itoa(r.Findings) }),
		wide("POD", func(r StatusRow) string { return r.Pod }),
	}
}

// numberUnless shows a number of a node that answered.
func numberUnless(of func(StatusRow) int) func(StatusRow) string {
	return func(r StatusRow) string {
		if r.State == NoAnswer {
			return ""
		}
		return strconv.Itoa(of(r))
	}
}

// age returns how long ago a moment was.
func age(now time.Time, at *time.Time) string {
	if at == nil {
		return ""
	}
	return fmt.Sprint(max(now.Sub(*at), 0).Round(time.Second))
}
