package report

import (
	"io"
	"slices"
	"strings"

	"github.com/kube-ipvs/kube-ipvs/e2e/bench/cell"
)

// brief is a row of the brief table: one figure, or two that belong together.
type brief struct {
	title string // "…" goes on with the row before
	part  string
	names []string
}

var briefs = []brief{
	{"one endpoint changes: until a new connection reaches it, median", "one endpoint changes", []string{"p50"}},
	{"… p99", "one endpoint changes", []string{"p99"}},
	{"… CPU, processes", "one endpoint changes", []string{"CPU", "processes launched"}},
	{"one Service comes: until it answers, median", "one Service comes", []string{"p50"}},
	{"… p99", "one Service comes", []string{"p99"}},
	{"start: until all is written", "start", []string{"quiet since"}},
	{"… until the first Service answers", "start", []string{"first Service answers"}},
	{"… CPU, processes", "start", []string{"CPU", "processes launched"}},
	{"nothing changes: CPU in 30 s", "idle", []string{"CPU in 30 s"}},
	{"… with the audit that repairs what was taken away", "idle", []string{"CPU in 30 s, with a repair"}},
	{"50 endpoints a second change: a change, median", "many endpoints change", []string{"a probe, p50"}},
	{"… p99", "many endpoints change", []string{"a probe, p99"}},
	{"memory (RSS) after the start", "start", []string{"RSS after it"}},
}

// Brief writes what matters most, in one table of Markdown for all numbers of Services: the README has it. Rows that Ours has no figure of are
// left out; what it is of Baseline's is a column.
func Brief(w io.Writer, cells []*cell.Cell) error {
	others := slices.DeleteFunc(slices.Sorted(slices.Values(candidatesOf(cells))), func(name string) bool { return name == Ours || name == Baseline })
	rows := [][]string{slices.Concat([]string{"Services × endpoints", Ours, Baseline, ""}, others)}
	for _, group := range byServices(cells) {
		of := map[string]*cell.Cell{}
		for _, c := range group {
			of[c.Candidate] = c
		}
		for _, b := range briefs {
			ours, ratio, known := b.compare(of[Ours], of[Baseline])
			if !known {
				continue
			}
			title := b.title
			if !strings.HasPrefix(title, "…") {
				title = count(float64(group[0].Services)) + " × " + count(float64(group[0].Endpoints)) + ": " + title
			}
			row := []string{title, ours, b.text(of[Baseline]), ratio}
			for _, name := range others {
				row = append(row, b.text(of[name]))
			}
			rows = append(rows, row)
		}
	}
	var out strings.Builder
	writeAligned(&out, rows, 1, len(rows[0]))
	_, err := io.WriteString(w, out.String())
	return err
}

// compare is the text of ours, and what the first of its figures is of that of the base, empty where one of them is not known.
func (b brief) compare(ours, base *cell.Cell) (text, ratio string, known bool) {
	text = b.text(ours)
	f := theFigure(b.part, b.names[0])
	if ours == nil || !f.of(ours).known {
		return text, "", false
	}
	if base != nil {
		if v, to := f.of(ours), f.of(base); to.known && to.number > 0 && !v.over && !to.over {
			ratio = part(v.number / to.number)
		}
	}
	return text, ratio, true
}

// text is what one cell has of it.
func (b brief) text(c *cell.Cell) string {
	var out []string
	for _, name := range b.names {
		f := theFigure(b.part, name)
		if c == nil || !f.of(c).known {
			return "–"
		}
		v := f.of(c)
		v.noisy = false // said in the whole table
		out = append(out, entry(f, v, value{}, true))
	}
	return strings.Join(out, ", ")
}
