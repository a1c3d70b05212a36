package inspect

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/agent"
	"github.com/kube-ipvs/kube-ipvs/internal/printable"
)

const pathAudit = "/v1/audit"

// auditWithin bounds an audit that is asked for: reading the rules of a large node in
// iptables mode takes many seconds.
const auditWithin = 2 * time.Minute

// Auditor is asked for an audit; *agent.Agent is one.
type Auditor interface {
	AuditNow(ctx context.Context) (agent.AuditReport, error)
}

func handleAudit(mux *http.ServeMux, a Auditor) {
	mux.HandleFunc("POST "+pathAudit, func(w http.ResponseWriter, req *http.Request) {
		ctx, cancel := context.WithTimeout(req.Context(), auditWithin)
		defer cancel()
		r, err := a.AuditNow(ctx)
		if err != nil {
			http.Error(w, "no audit: "+err.Error(), http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(r) // the client went away
	})
}

// Audit has the agent compare the kernel with what it should hold, and repair it. It takes as
// long as that, two minutes at most.
func (c *Client) Audit(ctx context.Context) (agent.AuditReport, error) {
	var r agent.AuditReport
	if _, err := c.Status(ctx); err != nil {
		return r, err // an agent that hangs is not waited for
	}
	patient := *c
	patient.http.Timeout = auditWithin + patience
	body, err := patient.ask(ctx, http.MethodPost, pathAudit)
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(body, &r); err != nil {
		return r, fmt.Errorf("read the report of the audit: %w", err)
	}
	return r, nil
}

// WriteAudit prints for people the findings of an audit, and the results of the repairs.
func WriteAudit(w io.Writer, r agent.AuditReport) error {
	out := printable.NewWriter(w)
	found, remaining := 0, 0
	for _, t := range r.Tables {
		found, remaining = found+t.Found, remaining+t.Remaining
	}
	fmt.Fprintf(out, "audit of %s, which cost %s of a processor: ", rounded(r.Seconds), rounded(r.CostSeconds))
	switch {
	case found == 0 && r.Unread == "":
		fmt.Fprintln(out, "the kernel is as desired")
	case found == 0:
		fmt.Fprintln(out, "no drift was found in the tables that could be read")
	case remaining == 0:
		fmt.Fprintf(out, "%s not as desired: repaired\n", rowCount(found))
	default:
		fmt.Fprintf(out, "%s not as desired: %d are not repaired yet\n", rowCount(found), remaining)
	}
	if r.Unread != "" {
		fmt.Fprintf(out, "unread: drift may be missed there: %s\n", oneLine(r.Unread))
	}
	if r.LastError != "" {
		fmt.Fprintf(out, "failing: %s\n", oneLine(r.LastError))
	}
	if found == 0 {
		return nil
	}
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprint(t, "\nTABLE\tFOUND\tNOT IN PLACE\tREPAIR\n")
	for _, table := range r.Tables {
		lead := fmt.Sprintf("%s\t%d\t%d", table.Table, table.Found, table.Remaining)
		for _, row := range table.Rows {
			fmt.Fprintf(t, "%s\t%s\n", lead, oneLine(row))
			lead = strings.Repeat("\t", 2)
		}
		if table.More > 0 {
			fmt.Fprintf(t, "%s\tand %d more\n", lead, table.More)
		}
	}
	return t.Flush()
}

// rounded is a time for people.
func rounded(s float64) time.Duration {
	return time.Duration(s * float64(time.Second)).Round(10 * time.Microsecond)
}

func rowCount(n int) string {
	if n == 1 {
		return "1 row was"
	}
	return fmt.Sprintf("%d rows were", n)
}
