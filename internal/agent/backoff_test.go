package agent

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

// hurried asks to be tried again soon.
type hurried struct{ error }

func (hurried) RetryWithin() time.Duration { return 50 * time.Millisecond }

func TestBackoffDoubles(t *testing.T) {
	b := backoff{least: 100 * time.Millisecond, most: time.Second}
	busy := errors.New("busy")
	for _, want := range []int64{100, 200, 400, 800, 1000, 1000} {
		if got := b.backOff(busy); got.Milliseconds() != want {
			t.Errorf("delay %s, want %d ms", got, want)
		}
	}
	if got := b.backOff(fmt.Errorf("add a: %w", hurried{busy})); got != 50*time.Millisecond || b.delay != time.Second {
		t.Errorf("an error that asks for it is tried again after %s, and the delay is %s", got, b.delay)
	}
	b.fail(busy, true, noon)
	if n := b.succeed(); n != 1 || b.failures != 0 || b.lastError != nil {
		t.Errorf("after a success: %d failures before, now %+v", n, b)
	}
	if got := b.backOff(busy); got != 100*time.Millisecond {
		t.Errorf("delay after a success %s, want the least", got)
	}
}

func TestBackoffWarnings(t *testing.T) {
	b := backoff{least: time.Second, most: time.Minute, delay: 10 * time.Second}
	for _, step := range []struct {
		at      time.Duration
		text    string
		retried bool
		want    bool
	}{
		{0, "busy", true, true},
		{time.Second, "busy", true, false},      // sooner than half of the delay
		{6 * time.Second, "busy", false, false}, // nothing was tried again
		{6 * time.Second, "busy", true, true},
		{7 * time.Second, "refused", false, true}, // new
		{8 * time.Second, "refused", true, false},
	} {
		if got := b.fail(errors.New(step.text), step.retried, noon.Add(step.at)); got != step.want {
			t.Errorf("%q after %s, retried %t: warning %t, want %t", step.text, step.at, step.retried, got, step.want)
		}
	}
	if b.failures != 6 || b.lastError.Error() != "refused" {
		t.Errorf("%d failures, the last %v", b.failures, b.lastError)
	}
}
