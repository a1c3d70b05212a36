package top

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// frame is how many lines of the screen are not of the table.
const frame = 4

// The codes with which a terminal starts and stops reverse video (ECMA-48, SGR).
const (
	reverse = "\x1b[7m"
	plain   = "\x1b[0m"
)

// column is one of a table; the first takes what room there is.
type column struct {
	name  string
	width int
}

var serviceColumns = []column{
	{"SERVICE", 0}, {"CONN/S", 8}, {"PKT/S IN", 9}, {"OUT", 8}, {"BYTE/S IN", 10}, {"OUT", 8}, {"ACTIVE", 8}, {"INACTIVE", 9}, {"BACKENDS", 11}, {"SKEW", 6},
}

var backendColumns = []column{
	{"BACKEND", 0}, {"CONN/S", 8}, {"PKT/S IN", 9}, {"OUT", 8}, {"BYTE/S IN", 10}, {"OUT", 8}, {"ACTIVE", 8}, {"INACTIVE", 9}, {"WEIGHT", 7}, {"STATE", 14},
}

// View is the whole screen as text.
func (s Screen) View() string {
	if s.width == 0 || s.height == 0 {
		return ""
	}
	columns := serviceColumns
	if s.Detail != "" {
		columns = backendColumns
	}
	lines := []string{cut(s.title(), s.width), cut(s.said(), s.width), reverse + line(columns, names(columns), s.width) + plain}
	room := max(1, s.height-frame)
	for i := s.first; i < min(s.first+room, s.lines()); i++ {
		text := line(columns, s.cells(i), s.width)
		if s.label(i) == s.chosen {
			text = reverse + text + plain
		}
		lines = append(lines, text)
	}
	for len(lines) < s.height-1 {
		lines = append(lines, "")
	}
	return strings.Join(append(lines, cut(s.help(), s.width)), "\n")
}

func (s Screen) title() string {
	what := fmt.Sprintf("%d Services", len(s.shown))
	switch {
	case s.Detail != "":
		what = fmt.Sprintf("%s: %d backends", s.Detail, len(s.backends))
	case s.filter != "" || s.typing:
		what = fmt.Sprintf("%d of %d Services with %q", len(s.shown), len(s.all), s.filter)
	}
	title := fmt.Sprintf("kube-ipvs top  %s  %s, every %s, by %s", s.is.At.Format(time.TimeOnly), what, s.Every, s.Sort)
	if s.paused {
		title += "  PAUSED"
	}
	return title
}

// said is the message for the user, in one line.
func (s Screen) said() string {
	switch {
	case s.trouble != nil:
		return "! " + strings.Join(strings.Split(s.trouble.Error(), "\n"), "; ")
	case s.samples < 2:
		return "rates per second appear with the next sample"
	}
	return ""
}

func (s Screen) help() string {
	switch {
	case s.typing:
		return "/" + s.filter + "_   enter keeps the filter, esc drops it"
	case s.Detail != "":
		return "esc back   sort: c connections, p packets, b bytes, a active, n address   space pause   q quit"
	}
	return "enter backends   sort: c connections, p packets, b bytes, a active, s skew, n name   / filter   space pause   q quit"
}

func (s Screen) cells(i int) []string {
	if s.Detail != "" {
		return s.backends[i].cells(s.is.At)
	}
	return s.shown[i].cells()
}

func (s Service) cells() []string {
	cells := append([]string{s.Label()}, s.Rates.cells()...)
	if s.Load == nil {
		return append(cells, "?", "?", "?", "?")
	}
	backends := strconv.Itoa(s.Load.Backends)
	if s.Load.Draining > 0 {
		backends += fmt.Sprintf(" -%d", s.Load.Draining)
	}
	skew := "-"
	if s.Load.Skew > 0 {
		skew = strconv.FormatFloat(s.Load.Skew, 'f', 2, 64)
	}
	return append(cells, number(float64(s.Load.Active)), number(float64(s.Load.Inactive)), backends, skew)
}

func (b Backend) cells(now time.Time) []string {
	state := "serving"
	switch {
	case b.Draining && !b.Until.IsZero():
		state = fmt.Sprintf("draining %s", max(0, b.Until.Sub(now)).Round(time.Second))
	case b.Draining:
		state = "draining"
	}
	return append(append([]string{b.Addr.String()}, b.Rates.cells()...),
		number(float64(b.Active)), number(float64(b.Inactive)), strconv.Itoa(int(b.Weight)), state)
}

func (r Rates) cells() []string {
	return []string{number(r.Connections), number(r.PacketsIn), number(r.PacketsOut), number(r.BytesIn), number(r.BytesOut)}
}

// number prints 0.4, 12, 3.4k, 120M.
func number(v float64) string {
	if v == 0 {
		return "0"
	}
	unit := ""
	for _, next := range []string{"k", "M", "G", "T", "P"} {
		if v < 999.5 {
			break
		}
		v, unit = v/1000, next
	}
	if v < 9.95 && (unit != "" || v != float64(int64(v))) {
		return strconv.FormatFloat(v, 'f', 1, 64) + unit
	}
	return strconv.FormatFloat(v, 'f', 0, 64) + unit
}

func names(columns []column) []string {
	out := make([]string, len(columns))
	for i, c := range columns {
		out[i] = c.name
	}
	return out
}

// line puts cells into columns: the first to the left, numbers to the right.
func line(columns []column, cells []string, width int) string {
	first := width
	for _, c := range columns {
		first -= c.width
	}
	var b strings.Builder
	for i, c := range columns {
		if i == 0 {
			b.WriteString(pad(cut(cells[0], max(first, 12)), max(first, 12)))
			continue
		}
		text := cut(cells[i], c.width-1)
		b.WriteString(strings.Repeat(" ", c.width-utf8.RuneCountInString(text)))
		b.WriteString(text)
	}
	return cut(b.String(), width)
}

func pad(text string, width int) string {
	return text + strings.Repeat(" ", max(0, width-utf8.RuneCountInString(text)))
}

// cut shortens a text to a width, and shows that it did.
func cut(text string, width int) string {
	if utf8.RuneCountInString(text) <= width {
		return text
	}
	if width < 1 {
		return ""
	}
	return string([]rune(text)[:width-1]) + "…"
}
