package agent

import "time"

// An action is a step of the loop that waits for a time.
type action uint8

// The actions. Of two that are due at the same time the first in this list runs first.
const (
	takeChanges  action = iota // compile the Services that changed: the debounce is over
	takeDeferred               // compile the Services that the catalog held back until now
	retryFailed                // write the failed rows again
	repairLost                 // write the rows that another process took away
	applyDue                   // write the rows that the mode's clock made pending
	readHost                   // read the addresses of this machine
	probeAgain                 // probe the schedulers and tunnels that the kernel refused
	auditPiece                 // begin an audit or continue it
	takeSample                 // look for signs of a large loss
	actions                    // the number of actions
)

// A schedule has the time of each action. It reads no clock, and belongs to the loop goroutine.
type schedule struct {
	at       [actions]time.Time // the zero time is none
	due      time.Time          // the time of the mode that applyDue was set for
	repaired time.Time          // the last repair
}

// repairPause is the least time between two repairs of rows that another process takes away. The agent
// does not compete at full speed with such a process.
const repairPause = time.Second

// set replaces the time of an action.
func (s *schedule) set(a action, at time.Time) { s.at[a] = at }

// setIfUnset keeps a time that is set: the first of several causes decides when the action runs.
func (s *schedule) setIfUnset(a action, at time.Time) {
	if !s.isSet(a) {
		s.at[a] = at
	}
}

// setDue sets applyDue for a time of the mode, but no sooner than soonest. The zero time is none, and a
// time that did not change keeps its action.
func (s *schedule) setDue(due, soonest time.Time) {
	switch {
	case due.IsZero():
		s.cancel(applyDue)
	case !s.isSet(applyDue) || !due.Equal(s.due):
		s.due = due
		s.set(applyDue, later(due, soonest))
	}
}

// setRepair sets repairLost, no sooner than soonest and than repairPause after the last repair.
func (s *schedule) setRepair(soonest time.Time) {
	s.setIfUnset(repairLost, later(soonest, s.repaired.Add(repairPause)))
}

// samplePeriod is the time between two samples. A tenth of it is random in both directions, so that the
// agents of many nodes do not run in step with each other or with another program.
const samplePeriod = time.Second

// startAudits sets the first audit and the first sample, unless they are set. A period of 0 or less is
// neither.
func (s *schedule) startAudits(period time.Duration, now time.Time) {
	if period > 0 {
		s.setIfUnset(auditPiece, now.Add(period))
		s.setIfUnset(takeSample, now.Add(samplePeriod))
	}
}

func (s *schedule) cancel(a action) { s.at[a] = time.Time{} }

func (s *schedule) isSet(a action) bool { return !s.at[a].IsZero() }

// next returns the action with the earliest time, and that time. It reports false if none is set.
func (s *schedule) next() (first action, at time.Time, ok bool) {
	for a := range actions {
		if s.isSet(a) && (!ok || s.at[a].Before(at)) {
			first, at, ok = a, s.at[a], true
		}
	}
	return first, at, ok
}

// begin removes the time of an action that runs now.
func (s *schedule) begin(a action, now time.Time) {
	s.cancel(a)
	if a == repairLost {
		s.repaired = now
	}
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}
