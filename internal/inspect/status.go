package inspect

import (
	"fmt"
	"io"
	"net/netip"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/agent"
	"github.com/kube-ipvs/kube-ipvs/internal/printable"
)

// WriteStatus prints a status for people.
func WriteStatus(w io.Writer, s agent.Status) error {
	t := tabwriter.NewWriter(printable.NewWriter(w), 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "node\t%s\nmode\t%s\nstate\t%s\n", s.Node, s.Mode, state(s))
	fmt.Fprintf(t, "services\t%d served, %d skipped, %d with notes, %d with annotations that are not followed\n", s.Services, s.Skipped, s.Noted, s.RefusedAnnotations)
	fmt.Fprintf(t, "claims\t%d addresses left unbound, as other machines need them; %d conflicts\n", s.Unbound, s.Conflicts)
	fmt.Fprintf(t, "ports\tNodePorts on %s; %d health-check ports, %s\n", someAddresses(s.NodePorts), s.HealthChecks, verdict(s))
	fmt.Fprintf(t, "draining\t%d destinations; %d deleted in the last minutes; %d climb to their weight\n", s.Draining, s.Trash, s.Climbing)
	fmt.Fprintf(t, "cycles\t%d that wrote\n", s.Cycles)
	fmt.Fprintf(t, "audits\t%s\n", audits(s))
	for _, u := range s.Unreadable {
		fmt.Fprintf(t, "unread\t%s\n", oneLine(u))
	}
	if s.AuditError != "" {
		fmt.Fprintf(t, "blind\tdrift may go unseen: %s\n", oneLine(s.AuditError))
	}
	if s.SweepError != "" {
		fmt.Fprintf(t, "left\tsome of what another mode wrote: %s\n", oneLine(s.SweepError))
	}
	if s.LastError != "" {
		fmt.Fprintf(t, "failing\t%d times in a row: %s\n", s.Failures, oneLine(s.LastError))
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

// state puts the loop into words. A failure comes first: a single row that is always refused keeps
// an agent from ever being Ready, although it has started.
func state(s agent.Status) string {
	switch {
	case !s.Synced:
		return "waiting for the sources"
	case s.Failures > 0:
		return failing(s) + unread(s)
	case !s.Ready:
		return "writing for the first time" + unread(s)
	}
	return "serving" + unread(s)
}

// failing counts what is not in place. Before the first pass there is no count to
// trust, and a pass may fail without leaving a row behind.
func failing(s agent.Status) string {
	if s.Last == nil && !s.Ready {
		return "not serving yet; preparing or reading the kernel fails"
	}
	pending := 0
	for _, t := range s.Tables {
		pending += t.Updates + t.Deletes
		if !s.Complete {
			pending -= t.Orphans // kept on purpose
		}
	}
	switch pending {
	case 0:
		return "serving; the last pass failed"
	case 1:
		return "serving; 1 row could not be written"
	}
	return fmt.Sprintf("serving; %d rows could not be written", pending)
}

func unread(s agent.Status) string {
	switch {
	case !s.Complete:
		return "; some input cannot be read, so nothing that looks orphaned is deleted"
	case len(s.Unreadable) > 0:
		return "; some input cannot be read, its last good content stays in use"
	}
	return ""
}

// someAddresses lists as many as fit on a line.
func someAddresses(addrs []netip.Addr) string {
	const most = 6
	if len(addrs) == 0 {
		return "no address"
	}
	var words []string
	for _, a := range addrs[:min(most, len(addrs))] {
		words = append(words, a.String())
	}
	text := strings.Join(words, ", ")
	if rest := len(addrs) - most; rest > 0 {
		text += fmt.Sprintf(" and %d more", rest)
	}
	return text
}

// verdict is the state that health-check ports report for the agent itself.
func verdict(s agent.Status) string {
	if s.Healthy {
		return "healthy"
	}
	return "not healthy"
}

// oneLine keeps errors that were joined from breaking the columns.
func oneLine(s string) string { return strings.Join(strings.Split(strings.TrimSpace(s), "\n"), "; ") }

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

// auditShare is what audits may cost of one processor.
const auditShare = 0.01

// audits reports how often drift is looked for, when last, and what that costs.
func audits(s agent.Status) string {
	text := strconv.FormatUint(s.Audits, 10)
	if s.AuditPeriod > 0 {
		text += fmt.Sprintf(", one every %s", time.Duration(s.AuditPeriod*float64(time.Second)).Round(time.Second))
	}
	if a := s.LastAudit; a != nil {
		text += "; the last ended at " + a.Ended.Format(time.TimeOnly)
		if s.AuditPeriod > 0 {
			share := a.CostSeconds / s.AuditPeriod
			text += fmt.Sprintf(" and cost %.2g %% of a processor", 100*share)
			if share > auditShare {
				text += fmt.Sprintf(", more than the %g %% it should", 100*auditShare)
			}
		}
	}
	return text + fmt.Sprintf("; %d rows had drifted", s.Drifted)
}
