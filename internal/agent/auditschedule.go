package agent

import "time"

// An auditSchedule decides when the pieces of audits run. It reads no clock, and belongs to the loop
// goroutine.
type auditSchedule struct {
	period  time.Duration // from the beginning of one audit to that of the next; 0 or less is no audits
	running bool
	began   time.Time
}

func (s *auditSchedule) begin(now time.Time) { s.running, s.began = true, now }

func (s *auditSchedule) end() { s.running = false }

// next returns when the next piece is due, or the next audit: a period after the last audit began. The
// rest after an audit is at least as long as the audit took, up to a period. A requested audit is due now.
// next reports false for never.
func (s *auditSchedule) next(now time.Time, requested bool) (at time.Time, ok bool) {
	switch {
	case s.running || requested:
		return now, true
	case s.period > 0:
		took := now.Sub(s.began)
		return now.Add(max(s.period-took, min(took, s.period))), true
	}
	return time.Time{}, false
}
