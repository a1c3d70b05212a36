package daemon

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// A failed action is repeated at growing intervals until it succeeds or its context ends.
func TestRetryUntilDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var tries []time.Duration
		retryUntilDone(t.Context(), func() bool {
			tries = append(tries, time.Since(start))
			return len(tries) == 9
		})
		s := time.Second
		if want := []time.Duration{0, 1 * s, 3 * s, 7 * s, 15 * s, 31 * s, 63 * s, 123 * s, 183 * s}; !slices.Equal(tries, want) {
			t.Errorf("tried at %v, want %v", tries, want)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		start = time.Now()
		retryUntilDone(ctx, func() bool { return false })
		if took := time.Since(start); took != 10*time.Second {
			t.Errorf("ended after %s, and its context after 10s", took)
		}
	})
}
