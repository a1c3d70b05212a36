package agent

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// noon is the time at which the clocks of these tests begin.
var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// order takes all actions out of a schedule, the earliest first.
func order(s *schedule) (out []action) {
	for {
		next, at, ok := s.next()
		if !ok {
			return out
		}
		out = append(out, next)
		s.begin(next, at)
	}
}

func TestScheduleOrder(t *testing.T) {
	var s schedule
	if _, _, ok := s.next(); ok {
		t.Error("an empty schedule has an action")
	}
	s.set(auditPiece, noon)
	s.set(takeChanges, noon.Add(time.Second))
	s.set(retryFailed, noon.Add(time.Second))
	s.set(readHost, noon.Add(time.Minute))
	s.set(readHost, noon.Add(-time.Minute)) // replaces
	s.setIfUnset(auditPiece, noon.Add(-time.Hour))
	s.set(takeSample, noon.Add(-time.Hour))
	s.cancel(takeSample)
	if diff := cmp.Diff([]action{readHost, auditPiece, takeChanges, retryFailed}, order(&s)); diff != "" {
		t.Errorf("actions in order (-want +got):\n%s", diff)
	}
}

// A mode that asks again and again for the same time must not push its pass back.
func TestScheduleOfAModesTime(t *testing.T) {
	var s schedule
	due := noon.Add(time.Second)
	s.setDue(due, noon)
	s.setDue(due, noon.Add(time.Minute))
	if !s.at[applyDue].Equal(due) {
		t.Errorf("the same time is set for %v, want %v", s.at[applyDue], due)
	}
	s.setDue(noon.Add(2*time.Second), noon.Add(time.Minute))
	if want := noon.Add(time.Minute); !s.at[applyDue].Equal(want) {
		t.Errorf("another time is set for %v, want the soonest, %v", s.at[applyDue], want)
	}
	s.setDue(time.Time{}, noon)
	if s.isSet(applyDue) {
		t.Error("no time leaves an action")
	}
}

func TestRepairsHaveAPause(t *testing.T) {
	var s schedule
	s.setRepair(noon)
	if !s.at[repairLost].Equal(noon) {
		t.Errorf("the first repair is at %v, want %v", s.at[repairLost], noon)
	}
	s.begin(repairLost, noon)
	s.setRepair(noon.Add(time.Millisecond))
	if want := noon.Add(repairPause); !s.at[repairLost].Equal(want) {
		t.Errorf("the next repair is at %v, want %v", s.at[repairLost], want)
	}
}

func TestAuditsWithoutAPeriod(t *testing.T) {
	var s schedule
	s.startAudits(-1, noon)
	if got := order(&s); got != nil {
		t.Errorf("actions %v, want none", got)
	}
	s.startAudits(time.Minute, noon)
	s.startAudits(time.Minute, noon.Add(time.Hour)) // the next pass
	if !s.at[auditPiece].Equal(noon.Add(time.Minute)) || !s.at[takeSample].Equal(noon.Add(samplePeriod)) {
		t.Errorf("audit at %v, sample at %v", s.at[auditPiece], s.at[takeSample])
	}
}
