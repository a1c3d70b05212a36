package config

import "time"

// SetPace makes Watch look as often as a test can wait for.
// With pollOnly the kernel has no watch to give.
func (l *Loader) SetPace(quiet, poll time.Duration, pollOnly bool) {
	l.pace = pace{quiet, poll, pollOnly}
}
