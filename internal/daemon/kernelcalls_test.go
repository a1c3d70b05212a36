package daemon

import (
	"errors"
	"testing"
	"time"
)

// Calls of handles before the observer is set are counted, and later ones reach it.
func TestCallsAreHeard(t *testing.T) {
	var c calls
	speak := c.of("link")
	speak(time.Second, nil)
	var room string
	var took time.Duration
	var failed error
	c.observe(func(r string, d time.Duration, err error) { room, took, failed = r, d, err })
	if room != "" {
		t.Errorf("heard of %s before it spoke", room)
	}
	late := errors.New("late")
	speak(time.Minute, late)
	if room != "link" || took != time.Minute || !errors.Is(failed, late) {
		t.Errorf("heard %s, %s, %v", room, took, failed)
	}
}
