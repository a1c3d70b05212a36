// Package poll waits for a state that another goroutine, another process or the kernel
// brings about. A test that waits this way fails on a wrong state and not on a busy machine.
package poll

import (
	"testing"
	"time"
)

// Patience limits one wait. It is far above what any wait takes on a busy machine, so that
// only a state that never comes fails a test. Where other programs keep this one from the
// processor, as they do with one of idle priority, that time does not count.
const Patience = time.Minute

// firstPause and longestPause bound the pause between two evaluations. The pause doubles,
// so that a long wait leaves the CPU to the code under test.
const (
	firstPause   = time.Millisecond
	longestPause = 16 * time.Millisecond
)

// Until evaluates the condition until it holds. After Patience Until ends the test with
// what it waited for and with what each state function returns.
func Until(t testing.TB, what string, holds func() bool, state ...func() string) {
	t.Helper()
	Within(t, Patience, what, holds, state...)
}

// Within is Until with a limit of its own, for a wait that takes minutes on a busy machine.
func Within(t testing.TB, limit time.Duration, what string, holds func() bool, state ...func() string) {
	t.Helper()
	deadline := time.Now().Add(limit)
	for pause := firstPause; !holds(); pause = min(2*pause, longestPause) {
		if time.Now().After(deadline) {
			text := ""
			for _, s := range state {
				text += "\n" + s()
			}
			t.Fatalf("waited %s in vain for %s%s", limit, what, text)
		}
		began := time.Now()
		time.Sleep(pause)
		deadline = deadline.Add(time.Since(began) - pause)
	}
}

// Receive returns the next value of the channel. After Patience Receive ends the test with
// what it waited for.
func Receive[T any](t testing.TB, what string, from <-chan T) T {
	t.Helper()
	var v T
	deadline := time.Now().Add(Patience)
	for time.Now().Before(deadline) {
		began := time.Now()
		select {
		case v = <-from:
			return v
		case <-time.After(longestPause):
			deadline = deadline.Add(time.Since(began) - longestPause)
		}
	}
	t.Fatalf("waited %s in vain for %s", Patience, what)
	return v
}
