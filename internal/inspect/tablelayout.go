package inspect

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/kube-ipvs/kube-ipvs/internal/printable"
)

// Table is the layout of rows for people.
type Table[R any] []Column[R]

// Column is one column of a table.
type Column[R any] struct {
	// Name is the heading, in capital letters.
	Name string
	// Wide columns are shown on demand.
	Wide bool
	Text func(R) string
	// Compare is the order of sorting; nil is that of the texts.
	Compare func(a, b R) int
	// Tone colours a cell; nil leaves it plain.
	Tone func(R) Tone
}

// Tone is the meaning of a cell, shown as a colour.
type Tone uint8

// The tones.
const (
	Plain   Tone = iota
	Good         // as it should be
	Notable      // worth a look
	Bad          // something is not served
)

// colours are those of ECMA-48 (SGR) that every terminal has.
var colours = map[Tone]string{Good: "\x1b[32m", Notable: "\x1b[33m", Bad: "\x1b[31m"}

const noColour = "\x1b[0m"

// TableOptions choose how a table is written.
type TableOptions struct{ Wide, NoHeaders, Colour bool }

const gap = "  "

// Write writes rows under their headings, aligned. An empty cell is a dash.
func (t Table[R]) Write(w io.Writer, rows []R, o TableOptions) error {
	shown := slices.DeleteFunc(slices.Clone(t), func(c Column[R]) bool { return c.Wide && !o.Wide })
	cells := make([][]string, len(rows))
	widths := make([]int, len(shown))
	for i, c := range shown {
		if !o.NoHeaders {
			widths[i] = utf8.RuneCountInString(c.Name)
		}
	}
	for i, r := range rows {
		cells[i] = make([]string, len(shown))
		for j, c := range shown {
			cells[i][j] = cell(c.Text(r))
			widths[j] = max(widths[j], utf8.RuneCountInString(cells[i][j]))
		}
	}
	out := bufio.NewWriter(w)
	if !o.NoHeaders {
		for j, c := range shown {
			writeCell(out, c.Name, Plain, widths, j)
		}
	}
	for i, r := range rows {
		for j, c := range shown {
			tone := Plain
			if o.Colour && c.Tone != nil {
				tone = c.Tone(r)
			}
			writeCell(out, cells[i][j], tone, widths, j)
		}
	}
	return out.Flush()
}

// writeCell writes one cell of a line, and what comes behind it.
func writeCell(w *bufio.Writer, text string, tone Tone, widths []int, at int) {
	pad := widths[at] - utf8.RuneCountInString(text)
	if colour := colours[tone]; colour != "" {
		text = colour + text + noColour
	}
	_, _ = w.WriteString(text) // Flush tells
	if at == len(widths)-1 {
		_ = w.WriteByte('\n')
		return
	}
	_, _ = w.WriteString(strings.Repeat(" ", pad) + gap)
}

// cell is the text of a cell: names and comments are other people's.
func cell(s string) string {
	if s == "" {
		return "-"
	}
	return printable.String(s)
}

// Sort orders rows by a column, named as its heading in letters of any size, with dashes for blanks; a dash before
// it turns the order round. Rows that are equal in it stay as they are.
func (t Table[R]) Sort(rows []R, by string) error {
	name, falling := strings.CutPrefix(by, "-")
	i := slices.IndexFunc(t, func(c Column[R]) bool { return strings.EqualFold(sortName(c.Name), sortName(name)) })
	if i < 0 {
		return fmt.Errorf("there is no column %q: use one of %s", by, strings.Join(t.Names(), ", "))
	}
	compare := t[i].Compare
	if compare == nil {
		compare = func(a, b R) int { return cmp.Compare(t[i].Text(a), t[i].Text(b)) }
	}
	slices.SortStableFunc(rows, func(a, b R) int {
		if falling {
			return compare(b, a)
		}
		return compare(a, b)
	})
	return nil
}

func sortName(heading string) string {
	return strings.ReplaceAll(strings.ToLower(heading), " ", "-")
}

// Names lists what Sort takes.
func (t Table[R]) Names() []string {
	var out []string
	for _, c := range t {
		out = append(out, sortName(c.Name))
	}
	return out
}

// column is one that shows a text.
func column[R any](name string, text func(R) string) Column[R] {
	return Column[R]{Name: name, Text: text}
}

// number is one that shows a number.
func number[R any, N int | uint16 | uint32](name string, of func(R) N) Column[R] {
	return Column[R]{Name: name, Text: func(r R) string { return fmt.Sprint(of(r)) }, Compare: by(of)}
}

// by compares what is taken of rows.
func by[R any, V cmp.Ordered](of func(R) V) func(a, b R) int {
	return func(a, b R) int { return cmp.Compare(of(a), of(b)) }
}

// wide shows a column on demand alone.
func wide[R any](c Column[R]) Column[R] {
	c.Wide = true
	return c
}

// few lists some words, as many as fit.
func few(words []string) string {
	const most = 4
	if rest := len(words) - most; rest > 0 {
		return strings.Join(words[:most], ",") + fmt.Sprintf(",+%d", rest)
	}
	return strings.Join(words, ",")
}
