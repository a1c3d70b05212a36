package cli

import (
	"errors"
	"strings"
	"testing"

	"github.com/kube-ipvs/kube-ipvs/internal/agent"
	"github.com/kube-ipvs/kube-ipvs/internal/inspect"
)

// An audit prints what it found and what became of it; its exit status tells of what is not in
// place.
func TestAudit(t *testing.T) {
	s := openShop(t)
	if err := s.sets.Flush(t.Context(), "KUBE-CLUSTER-IP"); err != nil {
		t.Fatal(err)
	}
	text := execute(t, "audit", "--run-dir", s.dir)
	for _, want := range []string{"3 rows were not as desired: repaired", "members  3      0             ipset add KUBE-CLUSTER-IP 10.96.0.10,tcp:80\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if text := execute(t, "audit", "--run-dir", s.dir); !strings.Contains(text, "the kernel is as desired") || strings.Contains(text, "TABLE") {
		t.Errorf("after the repair:\n%s", text)
	}
	if err := s.sets.Flush(t.Context(), "KUBE-CLUSTER-IP"); err != nil {
		t.Fatal(err)
	}
	fits(t, "audit", execute(t, "audit", "--run-dir", s.dir, "-o", "json"))
	fits(t, "audit", encoded(t, agent.AuditReport{Tables: []agent.AuditTable{}, Unread: "x", LastError: "y"}))
	status := s.show(t, "status")
	if !strings.Contains(status, "audits    3; the last ended at ") {
		t.Errorf("status:\n%s", status)
	}
}

func TestAuditVerdict(t *testing.T) {
	for name, tt := range map[string]struct {
		report agent.AuditReport
		code   int
		says   []string
	}{
		"nothing":  {report: agent.AuditReport{}, says: []string{"is as desired"}},
		"repaired": {report: agent.AuditReport{Tables: []agent.AuditTable{{Table: "servers", Found: 1, Rows: []string{"add x"}}}}, says: []string{"1 row was", "repaired", "add x"}},
		"unread":   {report: agent.AuditReport{Unread: "read sets: busy"}, code: 1, says: []string{"in the tables that could be read", "read sets: busy"}},
		"not in place": {report: agent.AuditReport{LastError: "no memory", Tables: []agent.AuditTable{{Table: "servers", Found: 30, Remaining: 2, Rows: []string{"add x"}, More: 29}}},
			code: 1, says: []string{"30 rows were", "2 are not repaired yet", "failing: no memory", "and 29 more"}},
	} {
		var out strings.Builder
		if err := inspect.WriteAudit(&out, tt.report); err != nil {
			t.Fatal(err)
		}
		for _, want := range tt.says {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%s: no %q in\n%s", name, want, out.String())
			}
		}
		var e exitError
		if errors.As(auditVerdict(tt.report), &e); e.code != tt.code {
			t.Errorf("%s: exit status %d, want %d", name, e.code, tt.code)
		}
	}
}
