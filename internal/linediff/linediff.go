package linediff

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// Row is one line of a text.
type Row struct {
	// Group names the object that the line is a part of: "-t 10.96.0.10:80", "KUBE-CLUSTER-IP",
	// "ip nat KUBE-SERVICES".
	Group string
	// Text is the line. The text of a rule begins with its family and table.
	Text string
}

// Parse returns the rows of a text of one kind: servers, sets, rules or addresses.
func Parse(kind, text string) []Row {
	if kind == "rules" {
		return parseRules(text)
	}
	var out []Row
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			out = append(out, Row{Group: groupOf(kind, line), Text: line})
		}
	}
	return out
}

// groupOf returns the server or the set of a line.
func groupOf(kind, line string) string {
	words := strings.Fields(line)
	switch {
	case kind == "servers" && len(words) > 2:
		return words[1] + " " + words[2]
	case kind == "sets" && len(words) > 1:
		return words[1]
	}
	return kind
}

// parseRules returns the rows of iptables-save text with a line "# ip" or "# ip6" before each
// family. The declaration of a chain is a row, because a chain may be empty.
func parseRules(text string) []Row {
	var out []Row
	family, table := "", ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "# "):
			family = line[2:]
		case strings.HasPrefix(line, "*"):
			table = line[1:]
		case strings.HasPrefix(line, ":"):
			name, _, _ := strings.Cut(line[1:], " ")
			out = append(out, row(family, table, name, "-N "+name))
		case strings.HasPrefix(line, "-A "):
			name, _, _ := strings.Cut(line[3:], " ")
			out = append(out, row(family, table, name, line))
		}
	}
	return out
}

func row(family, table, chain, line string) Row {
	return Row{Group: family + " " + table + " " + chain, Text: family + " " + table + " " + line}
}

// Line is a row that only one side has.
type Line struct {
	// Kernel reports whether the kernel has the row. Else it is only desired.
	Kernel bool
	Text   string
}

// String returns the line as a unified diff prints it.
func (l Line) String() string {
	if l.Kernel {
		return "-" + l.Text
	}
	return "+" + l.Text
}

// Compare returns the rows that only one side has, by group. If ordered reports true for a group
// and both sides have its rows in different orders, all rows of the group are returned.
func Compare(kernel, desired []Row, ordered func(group string) bool) []Line {
	have, want := byGroup(kernel), byGroup(desired)
	var out []Line
	for _, g := range groups(desired, kernel) {
		gone, news := minus(have[g], want[g]), minus(want[g], have[g])
		if len(gone)+len(news) == 0 && ordered(g) && !slices.Equal(have[g], want[g]) {
			gone, news = have[g], want[g]
		}
		for _, text := range gone {
			out = append(out, Line{Kernel: true, Text: text})
		}
		for _, text := range news {
			out = append(out, Line{Text: text})
		}
	}
	return out
}

// groups returns the groups of all sides in the order in which they first appear.
func groups(sides ...[]Row) []string {
	var out []string
	seen := map[string]struct{}{}
	for _, rows := range sides {
		for _, r := range rows {
			if _, was := seen[r.Group]; !was {
				seen[r.Group] = struct{}{}
				out = append(out, r.Group)
			}
		}
	}
	return out
}

func byGroup(rows []Row) map[string][]string {
	out := map[string][]string{}
	for _, r := range rows {
		out[r.Group] = append(out[r.Group], r.Text)
	}
	return out
}

// minus returns the multiset difference of two lists.
func minus(list, other []string) []string {
	count := make(map[string]int, len(other))
	for _, text := range other {
		count[text]++
	}
	var out []string
	for _, text := range list {
		if count[text] > 0 {
			count[text]--
			continue
		}
		out = append(out, text)
	}
	return out
}

// Write prints the lines of one kind below a heading. It prints nothing without lines.
func Write(w io.Writer, kind string, lines []Line) error {
	if len(lines) == 0 {
		return nil
	}
	var b strings.Builder
	fmt.Fprintf(&b, "@@ %s @@\n", kind)
	for _, l := range lines {
		b.WriteString(l.String() + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}
