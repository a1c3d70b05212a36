package diagnosis

import (
	"bufio"
	"fmt"
	"io"
	"strings"
)

// Write prints verdicts as an aligned table for people, each fix on a line
// of its own below its verdict.
func Write(w io.Writer, verdicts []Verdict) error {
	states, names := 0, 0
	for _, v := range verdicts {
		states, names = max(states, len(v.State)), max(names, len(v.Name))
	}
	out := bufio.NewWriter(w)
	row := func(state State, name, text string) {
		line := fmt.Sprintf("%-*s  %-*s  %s", states, state, names, name, text)
		fmt.Fprintln(out, strings.TrimRight(line, " "))
	}
	for _, v := range verdicts {
		row(v.State, v.Name, inOneLine(v.Detail))
		if v.Fix != "" {
			row("", "", "fix: "+v.Fix)
		}
	}
	return out.Flush()
}
