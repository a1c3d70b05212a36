package world

import (
	"testing"
	"time"
)

// TestPauseAfter: what is waited for long is asked for seldom, and seen late by a tenth at most, or by the first pause. That leaves most of a
// processor to others, however fast it is.
func TestPauseAfter(t *testing.T) {
	for _, tt := range []struct{ took, waited, want time.Duration }{
		{0, 0, shortestPause},
		{400 * time.Microsecond, 0, 600 * time.Microsecond},
		{2 * time.Millisecond, 0, pause},
		{patience, 20 * time.Millisecond, pause},
		{400 * time.Microsecond, 20 * time.Millisecond, 2 * time.Millisecond},
		{2 * time.Millisecond, 100 * time.Millisecond, 10 * time.Millisecond},
		{0, time.Minute, longestPause},
	} {
		if got := pauseAfter(tt.took, tt.waited); got != tt.want {
			t.Errorf("a question that took %s, after %s: %s, want %s", tt.took, tt.waited, got, tt.want)
		}
	}
}
