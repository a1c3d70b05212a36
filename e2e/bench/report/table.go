package report

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/kube-ipvs/kube-ipvs/e2e/bench/cell"
	"github.com/kube-ipvs/kube-ipvs/e2e/bench/stats"
)

// Table writes one table for each number of Services, in Markdown that is aligned for a terminal, and what has to be known to believe it. In
// parentheses is how many times the figure of Baseline it is.
func Table(w io.Writer, cells []*cell.Cell) error {
	var b strings.Builder
	about(&b, cells)
	for _, group := range byServices(cells) {
		fmt.Fprintf(&b, "\n%s Services with %d endpoints each\n\n", count(float64(group[0].Services)), group[0].Endpoints)
		table := lines(group)
		writeAligned(&b, table, 2, len(table[0]))
	}
	footnotes(&b, cells)
	_, err := io.WriteString(w, b.String())
	return err
}

// byServices are cells in groups that can be compared.
func byServices(cells []*cell.Cell) [][]*cell.Cell {
	var out [][]*cell.Cell
	for i, c := range cells {
		if i == 0 || c.Services != cells[i-1].Services {
			out = append(out, nil)
		}
		out[len(out)-1] = append(out[len(out)-1], c)
	}
	return out
}

// about says where it was measured.
func about(b *strings.Builder, cells []*cell.Cell) {
	seen := map[cell.Machine]bool{}
	for _, c := range cells {
		if m := c.Machine; !seen[m] {
			seen[m] = true
			where := map[string]string{"vm": "a virtual machine", "netns": "namespaces of the machine"}[m.Where]
			if where == "" {
				where = "the machine itself"
			}
			fmt.Fprintf(b, "Measured in %s: %d CPUs (%s), %d MiB, Linux %s, %s, %s.\n", where, m.CPUs, m.CPU, m.Memory, m.Kernel, or(m.IPTables, "no iptables"), or(m.NFTables, "no nft"))
		}
	}
	var spins []float64
	for _, c := range cells {
		for _, at := range []*cell.Calibration{c.Before, c.After} {
			if at != nil {
				spins = append(spins, at.Spins)
			}
		}
	}
	if len(spins) > 1 {
		fmt.Fprintf(b, "The machine itself was up to %.0f %% faster at one time than at another. \"~\" marks figures whose own halves or rounds differ by more than %.0f %%.\n",
			100*stats.Spread(spins...), 100*cell.Noisy)
	}
	if slices.Contains(candidatesOf(cells), Baseline) {
		fmt.Fprintf(b, "In parentheses: times the figure of %s. ", Baseline)
	}
	b.WriteString("\"> \": the limit of waiting came first.\n")
}

func or(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

// lines are the rows of a table, the head first. A figure that no cell knows is left out.
func lines(group []*cell.Cell) [][]string {
	head := []string{"", ""}
	for _, c := range group {
		head = append(head, c.Candidate)
	}
	out := [][]string{head}
	part := ""
	for _, f := range figures() {
		row, known := line(f, group)
		if !known {
			continue
		}
		if f.part != part {
			part, row[0] = f.part, f.part
		}
		out = append(out, row)
	}
	return out
}

func line(f figure, group []*cell.Cell) (row []string, known bool) {
	base := value{}
	for _, c := range group {
		if c.Candidate == Baseline {
			base = f.of(c)
		}
	}
	row = []string{"", f.name}
	for _, c := range group {
		v := f.of(c)
		known = known || v.known
		row = append(row, entry(f, v, base, c.Candidate == Baseline))
	}
	return row, known
}

// entry is one figure, and how many times the baseline's it is where both are numbers above 0.
func entry(f figure, v, base value, isBase bool) string {
	if !v.known {
		return "–"
	}
	text := f.text(v.number)
	if v.over {
		text = "> " + text
	}
	if v.noisy {
		text = "~" + text
	}
	if !isBase && base.known && base.number > 0 && v.number > 0 {
		text += " (" + ratio(v, base) + ")"
	}
	return text
}

// ratio is a bound where one side is.
func ratio(v, base value) string {
	text := digits(v.number / base.number)
	switch {
	case v.over && base.over:
		return "?"
	case v.over:
		return "> " + text
	case base.over:
		return "< " + text
	}
	return text
}

// writeAligned writes rows as a table of Markdown whose columns stand below each other. Numbers are in the columns from first to before last.
func writeAligned(b *strings.Builder, rows [][]string, first, last int) {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, text := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(text))
		}
	}
	for n, row := range rows {
		for i, text := range row {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(text))
			if i < first || i >= last {
				text += pad
			} else {
				text = pad + text
			}
			fmt.Fprintf(b, "| %s ", text)
		}
		b.WriteString("|\n")
		if n == 0 {
			for i, width := range widths {
				rule := strings.Repeat("-", width+1)
				if i < first || i >= last {
					fmt.Fprintf(b, "|%s-", rule)
				} else {
					fmt.Fprintf(b, "|%s:", rule)
				}
			}
			b.WriteString("|\n")
		}
	}
}

// footnotes say what was not measured, and how processes were counted.
func footnotes(b *strings.Builder, cells []*cell.Cell) {
	var notes []string
	ways := map[string]bool{}
	for _, c := range cells {
		if c.LaunchesBy != "" {
			ways[c.LaunchesBy] = true
		}
		if b, a := c.Before, c.After; b != nil && a != nil && stats.Spread(b.Spins, a.Spins) > cell.Noisy {
			notes = append(notes, fmt.Sprintf("%s, %s Services: the machine was %.0f %% faster at one end of the measurement than at the other",
				c.Candidate, count(float64(c.Services)), 100*stats.Spread(b.Spins, a.Spins)))
		}
		for _, part := range slices.Sorted(maps.Keys(c.Missing)) {
			notes = append(notes, fmt.Sprintf("%s, %s Services: %s: %s", c.Candidate, count(float64(c.Services)), part, c.Missing[part]))
		}
	}
	if len(ways) > 0 {
		notes = append([]string{"Processes are counted by " + strings.Join(slices.Sorted(maps.Keys(ways)), ", or ")}, notes...)
	}
	if len(notes) > 0 {
		b.WriteString("\n")
	}
	for _, note := range notes {
		fmt.Fprintf(b, "- %s\n", note)
	}
}
