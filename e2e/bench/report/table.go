package report

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/kube-ipvs/kube-ipvs/e2e/bench/measure"
)

// rows are the lines of a table: a figure, or two that belong together.
var rows = []struct {
	title   string
	figures []figure
}{
	{"start: until the first Service answers", []figure{firstAnswer}},
	{"start: until everything is written", []figure{written}},
	{"start: CPU", []figure{startCPU}},
	{"start: Services without an answer", []figure{unanswered}},
	{"memory (RSS) after the start", []figure{rss}},
	{"idle: CPU in 30 s", []figure{idleCPU}},
	{"one endpoint changes: p50, p99", []figure{changeP50, changeP99}},
	{"the same change at a watch alone: p50, p99", []figure{floorP50, floorP99}},
	{"one endpoint changes: CPU", []figure{changeCPU}},
	{"one Service is added: p50, p99", []figure{serviceP50, serviceP99}},
	{"new connections a second: via Service, without", rates(connections)},
	{"p99 of a connection: via Service, without", slowest(connections)},
	{"requests a second: via Service, without", rates(requests)},
	{"p99 of a request: via Service, without", slowest(requests)},
	{"one of 50 changes a second: p50, p99", []figure{churnP50, churnP99}},
	{"rolling update: after the last of 25 writes", []figure{rolled}},
	{"rolling update: failed connections", []figure{rollFailed}},
}

// Table writes a table for each number of Services, in Markdown, with the machine above it and the missing parts below.
func Table(w io.Writer, results []*Result) error {
	var b strings.Builder
	about(&b, results)
	for _, group := range byServices(results) {
		fmt.Fprintf(&b, "\n%s Services with %d endpoints each:\n\n", count(float64(group[0].Services)), group[0].Endpoints)
		writeAligned(&b, lines(group))
	}
	footnotes(&b, results)
	_, err := io.WriteString(w, b.String())
	return err
}

// byServices groups results that can be compared.
func byServices(results []*Result) [][]*Result {
	var out [][]*Result
	for i, r := range results {
		if i == 0 || r.Services != results[i-1].Services {
			out = append(out, nil)
		}
		out[len(out)-1] = append(out[len(out)-1], r)
	}
	return out
}

// about describes the machine.
func about(b *strings.Builder, results []*Result) {
	seen := map[measure.Machine]bool{}
	var speeds []float64
	for _, r := range results {
		speeds = append(speeds, r.Speeds...)
		m := r.Machine
		if seen[m] {
			continue
		}
		seen[m] = true
		where := map[string]string{"vm": "a virtual machine", "netns": "namespaces of the machine", "": "the machine itself"}[m.Where]
		fmt.Fprintf(b, "Measured in %s: %d CPUs (%s), %d MiB, Linux %s, %s, %s.\n", where, m.CPUs, m.CPU, m.Memory, m.Kernel, or(m.IPTables, "no iptables"), or(m.NFTables, "no nft"))
	}
	if len(speeds) > 1 {
		fmt.Fprintf(b, "The speed of the idle machine varied by up to %.0f %%. ", 100*measure.Spread(speeds...))
	}
	fmt.Fprintf(b, "\"~\" marks samples whose two halves differ by more than %.0f %%, \">\" a limit that ended the wait.\n", 100*measure.Noisy)
}

func or(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

// lines are the rows of a table, the head first, without rows that no result knows.
func lines(group []*Result) [][]string {
	head := []string{""}
	for _, r := range group {
		head = append(head, r.Candidate)
	}
	out := [][]string{head}
	for _, row := range rows {
		line, known := []string{row.title}, false
		for _, r := range group {
			text := entry(r, row.figures)
			known = known || text != unknown
			line = append(line, text)
		}
		if known {
			out = append(out, line)
		}
	}
	return out
}

// unknown stands for a figure that was not measured.
const unknown = "–"

// entry is what one result has of a row.
func entry(r *Result, figures []figure) string {
	var out []string
	for _, f := range figures {
		v := f.of(r)
		if !v.known {
			return unknown
		}
		text := f.text(v.number)
		if v.over {
			text = "> " + text
		}
		if v.noisy {
			text = "~" + text
		}
		out = append(out, text)
	}
	return strings.Join(out, ", ")
}

// writeAligned writes rows as a table of Markdown, the first column to the left and the others to the right.
func writeAligned(b *strings.Builder, rows [][]string) {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, text := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(text))
		}
	}
	for n, row := range rows {
		for i, text := range row {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(text))
			if i == 0 {
				fmt.Fprintf(b, "| %s%s ", text, pad)
			} else {
				fmt.Fprintf(b, "| %s%s ", pad, text)
			}
		}
		b.WriteString("|\n")
		if n == 0 {
			fmt.Fprintf(b, "|%s-", strings.Repeat("-", widths[0]+1))
			for _, width := range widths[1:] {
				fmt.Fprintf(b, "|%s:", strings.Repeat("-", width+1))
			}
			b.WriteString("|\n")
		}
	}
}

// footnotes say what was not measured, and why.
func footnotes(b *strings.Builder, results []*Result) {
	var notes []string
	for _, r := range results {
		for _, part := range slices.Sorted(maps.Keys(r.Missing)) {
			notes = append(notes, fmt.Sprintf("- %s, %s Services: %s: %s\n", r.Candidate, count(float64(r.Services)), part, r.Missing[part]))
		}
	}
	if len(notes) > 0 {
		b.WriteString("\n" + strings.Join(notes, ""))
	}
}
