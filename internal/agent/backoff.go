package agent

import (
	"errors"
	"math"
	"time"
)

// A backoff owns the failures of writing: how often in a row it failed, why, and after which delay it is
// tried again. It reads no clock, and belongs to the loop goroutine.
type backoff struct {
	least, most time.Duration // bounds of the delay

	delay     time.Duration
	failures  uint64
	lastError error
	warned    time.Time // the last warning
}

// backOff doubles the delay and returns it, or less if the error asks for that.
func (b *backoff) backOff(err error) time.Duration {
	b.delay = min(max(2*b.delay, b.least), b.most)
	return b.until(err)
}

// until returns the time from a failure to the next try.
func (b *backoff) until(err error) time.Duration { return min(b.delay, retryWithin(err)) }

// fail records an error and reports whether to log it: a new one always, the same one again no more often
// than the delay, whatever the error asks for.
func (b *backoff) fail(err error, retried bool, now time.Time) (warn bool) {
	isNew := b.lastError == nil || b.lastError.Error() != err.Error()
	b.failures++
	b.lastError = err
	if !isNew && (!retried || now.Sub(b.warned) < b.delay/2) {
		return false
	}
	b.warned = now
	return true
}

// succeed drops the failures and returns how many there were.
func (b *backoff) succeed() (failures uint64) {
	failures = b.failures
	b.delay, b.failures, b.lastError = 0, 0, nil
	return failures
}

// retryWithin returns how soon an error asks to be tried again: one whose cause ends without warning and
// costs little to check. Other errors do not ask.
func retryWithin(err error) time.Duration {
	var e interface{ RetryWithin() time.Duration }
	if errors.As(err, &e) {
		return e.RetryWithin()
	}
	return math.MaxInt64
}
