package world

import (
	"testing"
	"time"
)

// TestPauseAfter: what is waited for long is asked for seldom, and seen late by a tenth at most, or by the first pause.
func TestPauseAfter(t *testing.T) {
	for waited, want := range map[time.Duration]time.Duration{
		0:                      pause,
		20 * time.Millisecond:  pause,
		100 * time.Millisecond: 10 * time.Millisecond,
		time.Minute:            longestPause,
	} {
		if got := pauseAfter(waited); got != want {
			t.Errorf("after %s: %s, want %s", waited, got, want)
		}
	}
}
