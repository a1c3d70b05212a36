package agent

import (
	"slices"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/catalog"
)

// maxTriggers bounds how many triggers are kept while nothing can be written at all.
const maxTriggers = 10_000

// taken owns the times of the changes that were taken from the catalog and are not written yet. It reads
// no clock, and belongs to the loop goroutine.
type taken struct {
	at time.Time // when the changes of the next pass were taken; the zero time is none
	// triggers are when the changes of endpoints began that are not in the kernel yet.
	triggers []catalog.Trigger
}

// add records a batch; beyond maxTriggers the oldest triggers go.
func (t *taken) add(at time.Time, triggers []catalog.Trigger) {
	t.at = at
	t.triggers = append(t.triggers, triggers...)
	if excess := len(t.triggers) - maxTriggers; excess > 0 {
		t.triggers = slices.Delete(t.triggers, 0, excess)
	}
}

// start returns when the next pass began: when its changes were taken, or now if it has none.
func (t *taken) start(now time.Time) time.Time {
	start := t.at
	t.at = time.Time{}
	if start.IsZero() {
		return now
	}
	return start
}

// written returns the triggers, which are in the kernel now, and keeps none.
func (t *taken) written() []catalog.Trigger {
	all := t.triggers
	t.triggers = nil
	return all
}
