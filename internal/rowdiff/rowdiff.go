package rowdiff

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// Row is one line of a text.
type Row struct {
	// Group is what it is a part of: "-t 10.96.0.10:80", "KUBE-CLUSTER-IP", "ip nat KUBE-SERVICES".
	Group string
	// Text is the line; that of a rule begins with its family and table.
	Text string
}

// Parse reads the text of one kind: servers, sets, rules or addresses.
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

// groupOf is the server or the set of a line.
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

// parseRules reads save text with a line "# ip" or "# ip6" before each family. A chain that is
// declared is a row of its own: it may be there, and empty.
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

// Line is one row that only one side has.
type Line struct {
	// Kernel: only the kernel has it; else it is only desired.
	Kernel bool
	Text   string
}

// String prints it as in a unified list.
func (l Line) String() string {
	if l.Kernel {
		return "-" + l.Text
	}
	return "+" + l.Text
}

// Compare lists what only the kernel has and what is only desired, by group. Where ordered says so
// of a group, the same rows in another order are different: then all of the group is listed.
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

// groups lists those of both sides, each where it comes first.
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

// minus is what of one list another has not, as often as it has it less.
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

// Write prints the lines of one kind under their heading, and nothing where there are none.
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
