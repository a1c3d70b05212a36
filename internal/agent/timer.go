package agent

import "time"

// timer is a time.Timer that knows whether it is set. It belongs to the loop.
type timer struct {
	t   *time.Timer
	set bool
}

func newTimer() timer {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return timer{t: t}
}

// C delivers when the timer fires; call fired then. It is nil while the timer is not set:
// whoever selects would read the clock for each timer that is stopped.
func (t *timer) C() <-chan time.Time {
	if !t.set {
		return nil
	}
	return t.t.C
}

func (t *timer) arm(d time.Duration) {
	t.t.Reset(d)
	t.set = true
}

// armUnlessSet keeps an earlier appointment: the first of several changes
// decides when they are taken.
func (t *timer) armUnlessSet(d time.Duration) {
	if !t.set {
		t.arm(d)
	}
}

func (t *timer) fired() { t.set = false }

func (t *timer) stop() {
	t.t.Stop()
	t.set = false
}
