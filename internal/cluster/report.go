package cluster

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/kube-ipvs/kube-ipvs/internal/inspect"
	"github.com/kube-ipvs/kube-ipvs/internal/printable"
)

// A Report is the answer of a cluster. Field names in JSON never change; their schema is
// manifests/schemas/cluster.schema.json.
type Report struct {
	Verb string `json:"verb"`
	// Asked is the Service or address that the question is about.
	Asked string `json:"asked,omitempty"`
	// OK reports whether all nodes answered, agree, and have nothing wrong.
	OK       bool `json:"ok"`
	Nodes    int  `json:"nodes"`
	Answered int  `json:"answered"`
	// Verdict is the first line of the text.
	Verdict string `json:"verdict"`
	// Common is what all nodes that answered agree on.
	Common []Fact `json:"common"`
	// Silent nodes have not answered. Findings are problems, and differences from most nodes.
	Silent   []Silence `json:"silent"`
	Findings []Finding `json:"findings"`
	// Items are the rows of the table of the verb.
	Items []any `json:"items"`
	// More is how many rows were left out.
	More int `json:"more,omitempty"`

	rows  func(w io.Writer, o inspect.TableOptions) error
	index map[sentence]int
}

// A sentence identifies a finding.
type sentence struct {
	rank int
	what string
}

// A Fact is a value on which all nodes agree.
type Fact struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// A Silence is a node without an answer.
type Silence struct {
	Node string `json:"node"`
	Pod  string `json:"pod"`
	Why  string `json:"why"`
}

// A Finding is a sentence that is true of some nodes.
type Finding struct {
	Nodes []string `json:"nodes"`
	What  string   `json:"what"`

	rank int
}

// Ranks of findings, the worst first.
const (
	rankKernel = iota // the kernel has other rows than are desired
	rankState         // the agent lacks something
	rankDiffer        // most nodes are different
	rankWorthy        // worth a look
)

// find records a sentence about a node. Nodes with the same sentence share a finding.
func (r *Report) find(rank int, node, format string, args ...any) {
	what := fmt.Sprintf(format, args...)
	key := sentence{rank, what}
	i, there := r.index[key]
	if !there {
		if r.index == nil {
			r.index = map[sentence]int{}
		}
		i = len(r.Findings)
		r.index[key] = i
		r.Findings = append(r.Findings, Finding{What: what, rank: rank})
	}
	if !slices.Contains(r.Findings[i].Nodes, node) {
		r.Findings[i].Nodes = append(r.Findings[i].Nodes, node)
	}
}

// findingsOf returns how many findings each node has.
func (r *Report) findingsOf() map[string]int {
	out := map[string]int{}
	for _, f := range r.Findings {
		for _, n := range f.Nodes {
			out[n]++
		}
	}
	return out
}

// finish orders the findings and writes the verdict.
func (r *Report) finish() {
	for i := range r.Findings {
		slices.SortFunc(r.Findings[i].Nodes, compareNames)
	}
	slices.SortStableFunc(r.Findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), compareNames(a.Nodes[0], b.Nodes[0]), cmp.Compare(a.What, b.What))
	})
	r.OK = len(r.Silent) == 0 && len(r.Findings) == 0 && r.Nodes > 0
	r.Verdict = r.headline()
}

// headline reports how many nodes agree.
func (r *Report) headline() string {
	subject := ""
	if r.Asked != "" {
		subject = r.Asked + ": "
	}
	odd := r.findingsOf()
	switch {
	case r.OK && r.Nodes == 1:
		return subject + "1 node answers, and nothing is wrong"
	case r.OK:
		return fmt.Sprintf("%s%d nodes agree, and nothing is wrong", subject, r.Nodes)
	}
	parts := []string{}
	if well := r.Answered - len(odd); well > 0 {
		parts = append(parts, fmt.Sprintf("%d %s", well, verbFor(well, "agrees", "agree")))
	}
	if len(odd) > 0 {
		parts = append(parts, fmt.Sprintf("%d %s findings", len(odd), verbFor(len(odd), "has", "have")))
	}
	if n := len(r.Silent); n > 0 {
		parts = append(parts, fmt.Sprintf("%d %s not answered", n, verbFor(n, "has", "have")))
	}
	return fmt.Sprintf("%sof %s %s", subject, count(r.Nodes, "node"), strings.Join(parts, ", "))
}

// mostFindings is how many findings and silent nodes the text has, so that the table begins on the
// first screen.
const mostFindings = 15

// Write prints the report for people: the verdict, what all nodes agree on, what is wrong with its
// nodes, and the table.
func (r Report) Write(to io.Writer, o inspect.TableOptions) error {
	var b strings.Builder
	b.WriteString(printable.String(r.Verdict) + "\n")
	if len(r.Common) > 0 && r.Answered > 1 {
		var facts []string
		for _, f := range r.Common {
			facts = append(facts, f.Name+" "+f.Value)
		}
		fmt.Fprintf(&b, "all that answered: %s\n", printable.String(strings.Join(facts, ", ")))
	}
	r.writeOdd(&b, o)
	if _, err := io.WriteString(to, b.String()); err != nil {
		return err
	}
	if r.rows == nil || len(r.Items) == 0 {
		return nil
	}
	if _, err := io.WriteString(to, "\n"); err != nil {
		return err
	}
	if err := r.rows(to, o); err != nil || r.More == 0 {
		return err
	}
	_, err := fmt.Fprintf(to, "and %d more\n", r.More)
	return err
}

// writeOdd writes silent nodes and findings, the first of them without -o wide.
func (r Report) writeOdd(b *strings.Builder, o inspect.TableOptions) {
	var lines []string
	for _, s := range r.silences() {
		lines = append(lines, fmt.Sprintf("%s: has not answered: %s", names(s.Nodes, o.Wide), s.What))
	}
	for _, f := range r.Findings {
		who := names(f.Nodes, o.Wide)
		if len(f.Nodes) == r.Answered && r.Answered > 1 {
			who = "all nodes that answered"
		}
		lines = append(lines, who+": "+f.What)
	}
	if len(lines) > 0 {
		b.WriteString("\n")
	}
	rest := 0
	if !o.Wide && len(lines) > mostFindings {
		rest = len(lines) - mostFindings
		lines = lines[:mostFindings]
	}
	for _, l := range lines {
		b.WriteString(printable.String(l) + "\n")
	}
	if rest > 0 {
		fmt.Fprintf(b, "and %d more: -o wide\n", rest)
	}
}

// silences groups silent nodes by the reason.
func (r Report) silences() []Finding {
	var out []Finding
	for _, s := range r.Silent {
		i := slices.IndexFunc(out, func(f Finding) bool { return f.What == s.Why })
		if i < 0 {
			out = append(out, Finding{What: s.Why})
			i = len(out) - 1
		}
		out[i].Nodes = append(out[i].Nodes, s.Node)
	}
	return out
}

// names lists nodes, the first few of many.
func names(nodes []string, all bool) string {
	const most = 4
	if all || len(nodes) <= most {
		return strings.Join(nodes, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(nodes[:most], ", "), len(nodes)-most)
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// verbFor returns the verb for one or for many.
func verbFor(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

// setRows sets the items and their table.
func setRows[R any](r *Report, rows []R, table inspect.Table[R]) {
	r.Items = make([]any, len(rows))
	for i := range rows {
		r.Items[i] = rows[i]
	}
	r.rows = func(w io.Writer, o inspect.TableOptions) error { return table.Write(w, rows, o) }
}

// text returns a column of a table.
func text[R any](name string, of func(R) string) inspect.Column[R] {
	return inspect.Column[R]{Name: name, Text: of}
}

// wide returns a column that -o wide shows.
func wide[R any](name string, of func(R) string) inspect.Column[R] {
	return inspect.Column[R]{Name: name, Text: of, Wide: true}
}

// nodesColumn shows how many nodes a row is of, and with -o wide which.
func nodesColumn[R any](of func(R) []string) []inspect.Column[R] {
	return []inspect.Column[R]{
		text("NODES", func(r R) string {
			if nodes := of(r); len(nodes) <= 2 {
				return strings.Join(nodes, ", ")
			}
			return fmt.Sprint(len(of(r)))
		}),
		wide("ON", func(r R) string { return names(of(r), true) }),
	}
}
