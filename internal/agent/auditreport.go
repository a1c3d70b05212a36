package agent

import (
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
)

// auditRows bounds how many rows of a table a report of an audit names.
const auditRows = 20

// An AuditRecord is when the latest audit was complete, and its cost.
type AuditRecord struct {
	Ended time.Time `json:"ended"`
	// Seconds is how long it took. CostSeconds is how long the loop, and the readers beside it, were busy
	// with it: an upper bound of the CPU time.
	Seconds     float64 `json:"seconds"`
	CostSeconds float64 `json:"costSeconds"`
}

// An AuditReport is what a requested audit found, and the result of the repair.
type AuditReport struct {
	AuditRecord
	// Tables are those with rows that had drifted.
	Tables []AuditTable `json:"tables"`
	// Unread is what could not be read, so that drift there is not seen.
	Unread string `json:"unread,omitempty"`
	// LastError is why rows are not repaired.
	LastError string `json:"lastError,omitempty"`
}

// An AuditTable is what an audit found in one table.
type AuditTable struct {
	Table string `json:"table"`
	// Found counts the rows that drifted, Remaining those of the table that are still not in place after
	// the repair, whatever the reason.
	Found     int `json:"found"`
	Remaining int `json:"remaining"`
	// Rows are the changes that repair it, as an operator would type them; More is how many there are
	// besides.
	Rows []string `json:"rows"`
	More int      `json:"more"`
}

// audits owns the audit in progress, the result of the latest one and the requests for one. It belongs to
// the loop goroutine, but for the atomics.
type audits struct {
	auditSchedule
	cost   time.Duration // cost of the audit in progress
	failed error         // the read error of the audit in progress
	// requests wait for an audit that begins after them, answering for the one in progress, and report is
	// their answer.
	requests, answering []chan<- AuditReport
	report              AuditReport

	completed, drifted uint64
	lastError          error // the read error of the latest audit, or of the one in progress

	failures    atomic.Uint64
	took, ended atomic.Int64 // of the latest audit, in nanoseconds, the latter since 1970
}

// start begins an audit, for all requests.
func (s *audits) start(now time.Time) {
	s.begin(now)
	s.cost = 0
	s.answering, s.requests = append(s.answering, s.requests...), nil
	s.report = AuditReport{Tables: []AuditTable{}}
}

// fail records what could not be read; it holds until an audit reads everything.
func (s *audits) fail(err error) {
	s.failures.Add(1)
	s.failed, s.lastError = err, err
}

// complete ends an audit.
func (s *audits) complete(now time.Time) {
	s.end()
	s.completed++
	s.lastError, s.failed = s.failed, nil
	s.took.Store(int64(s.cost))
	s.ended.Store(now.UnixNano())
	s.report.AuditRecord = AuditRecord{Ended: now, Seconds: now.Sub(s.began).Seconds(), CostSeconds: s.cost.Seconds()}
}

// latest returns when the latest audit was complete, the zero time before the first, and its cost. Any
// goroutine may call it.
func (s *audits) latest() (ended time.Time, took time.Duration) {
	if n := s.ended.Load(); n != 0 {
		ended = time.Unix(0, n)
	}
	return ended, time.Duration(s.took.Load())
}

func (s *audits) totals() AuditTotals {
	t := AuditTotals{Audits: s.completed, Drifted: s.drifted, AuditPeriod: max(0, s.period).Seconds(), AuditError: errorText(s.lastError)}
	if s.ended.Load() != 0 {
		record := s.report.AuditRecord
		t.LastAudit = &record
	}
	return t
}

// found adds to the report what one piece found; pending are the rows to write for it.
func (s *audits) found(drift dataplane.Drift, pending []dataplane.PendingTable) {
	for _, name := range slices.Sorted(maps.Keys(drift)) {
		t, n := s.report.table(name), drift[name]
		t.Found += n
		if i := slices.IndexFunc(pending, func(p dataplane.PendingTable) bool { return p.Table == name }); i >= 0 {
			for _, row := range pending[i].Rows[:min(len(pending[i].Rows), n, max(0, auditRows-len(t.Rows)))] {
				t.Rows = append(t.Rows, row.Text())
			}
		}
		t.More = t.Found - len(t.Rows)
	}
}

// table returns that of a name, and adds it if there is none yet.
func (r *AuditReport) table(name string) *AuditTable {
	for i := range r.Tables {
		if r.Tables[i].Table == name {
			return &r.Tables[i]
		}
	}
	r.Tables = append(r.Tables, AuditTable{Table: name, Rows: []string{}})
	return &r.Tables[len(r.Tables)-1]
}

// answer sends the report of the audit that is complete; tables are those after the repair, and applyErr
// is why writing fails.
func (s *audits) answer(tables []dataplane.TableStatus, applyErr error) {
	r, remaining := s.report, 0
	for _, t := range tables {
		for i := range r.Tables {
			if r.Tables[i].Table == t.Table {
				r.Tables[i].Remaining = t.Updates + t.Deletes
				remaining += r.Tables[i].Remaining
			}
		}
	}
	r.Unread = errorText(s.lastError)
	if remaining > 0 {
		r.LastError = errorText(applyErr)
	}
	for i := range r.Tables {
		slices.Sort(r.Tables[i].Rows)
	}
	for _, c := range s.answering {
		c <- r // each has room for one
	}
	s.answering = nil
}
