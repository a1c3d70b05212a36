package destinations

import (
	"strings"
	"testing"
	"time"
)

// Poll times depend on the monotonic clock, and are the same for all callers within one interval.
func TestTurnsAreOfTheMonotonicClock(t *testing.T) {
	d := newDrains()
	for _, after := range []time.Duration{0, time.Millisecond, 3 * time.Second, pollInterval, time.Hour} {
		now := d.began.Add(after)
		got := d.nextTurn(now, pollInterval)
		if !strings.Contains(got.String(), " m=") { // which time.Time.String has for a monotonic reading
			t.Errorf("after %s: the turn at %v has lost its monotonic reading", after, got)
		}
		if left := got.Sub(now); left <= 0 || left > pollInterval {
			t.Errorf("after %s: the next turn is in %s", after, left)
		}
	}
	if a, b := d.nextTurn(d.began.Add(time.Second), pollInterval), d.nextTurn(d.began.Add(2*time.Second), pollInterval); a != b {
		t.Errorf("two turns, %v and %v", a, b)
	}
}
