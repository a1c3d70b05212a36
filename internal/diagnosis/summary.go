package diagnosis

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
)

// summaryLines is how many lines a summary has at most.
const summaryLines = 3

// rank orders states, worst first: a thing that the node cannot do comes before a check without an
// answer, and that before a warning.
func rank(s State) int { return slices.Index([]State{Lacks, Failed, Warn, OK}, s) }

// WriteSummary prints what is wrong, worst first, in three lines at most. The last line names the checks that do not fit.
func WriteSummary(w io.Writer, verdicts []Verdict) error {
	bad := slices.DeleteFunc(slices.Clone(verdicts), func(v Verdict) bool { return v.State == OK })
	slices.SortStableFunc(bad, func(a, b Verdict) int { return cmp.Compare(rank(a.State), rank(b.State)) })
	lines := make([]string, 0, len(bad))
	for _, v := range bad {
		lines = append(lines, fmt.Sprintf("%s: %s: %s", v.State, v.Name, inOneLine(v.Detail)))
	}
	switch {
	case len(lines) == 0:
		lines = []string{fmt.Sprintf("ok: %d checks, nothing to repair", len(verdicts))}
	case len(lines) > summaryLines:
		lines = append(lines[:summaryLines-1], theRest(bad[summaryLines-1:]))
	}
	_, err := fmt.Fprintln(w, strings.Join(lines, "\n"))
	return err
}

// theRest is a line for all that are left.
func theRest(bad []Verdict) string {
	names := make([]string, 0, len(bad))
	for _, v := range bad {
		names = append(names, v.Name)
	}
	return fmt.Sprintf("%s: %s: %s; and %d more below: %s", bad[0].State, bad[0].Name, inOneLine(bad[0].Detail),
		len(bad)-1, strings.Join(names[1:], ", "))
}

// inOneLine makes one line of joined errors.
func inOneLine(s string) string { return strings.ReplaceAll(s, "\n", "; ") }
