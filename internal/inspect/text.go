package inspect

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/agent"
)

// WriteStatus prints a status for people.
func WriteStatus(w io.Writer, s agent.Status) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "node\t%s\nmode\t%s\nstate\t%s\n", s.Node, s.Mode, state(s))
	fmt.Fprintf(t, "services\t%d served, %d skipped, %d with notes\n", s.Services, s.Skipped, s.Noted)
	fmt.Fprintf(t, "cycles\t%d that wrote\n", s.Cycles)
	fmt.Fprintf(t, "audits\t%d rounds, %d rows had drifted\n", s.Audits, s.Drifted)
	if s.LastError != "" {
		fmt.Fprintf(t, "failing\t%d times in a row: %s\n", s.Failures, s.LastError)
	}
	if s.Last != nil {
		fmt.Fprintf(t, "last\t%s\n", lastCycle(*s.Last))
	}
	fmt.Fprintf(t, "\nTABLE\tDESIRED\tTO WRITE\tTO DELETE\tORPHANS\tWRITTEN\n")
	for _, r := range s.Tables {
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%d\t%d\n", r.Table, r.Desired, r.Updates, r.Deletes, r.Orphans, s.Written[r.Table])
	}
	return t.Flush()
}

func state(s agent.Status) string {
	switch {
	case !s.Synced:
		return "waiting for the sources"
	case !s.Ready:
		return "writing for the first time"
	case !s.Complete:
		return "serving; some input cannot be read, so nothing that looks orphaned is deleted"
	case s.Failures > 0:
		return "serving; some rows could not be written"
	}
	return "serving"
}

func lastCycle(c agent.Cycle) string {
	text := fmt.Sprintf("%s, %d services compiled, took %s:", c.At.Format(time.TimeOnly), c.Services, c.Took.Round(time.Microsecond))
	for _, r := range c.Rows {
		text += fmt.Sprintf(" %s +%d ~%d -%d", r.Table, r.Adds, r.Updates, r.Deletes)
		if r.Failed > 0 {
			text += fmt.Sprintf(" (%d failed)", r.Failed)
		}
	}
	return text
}
