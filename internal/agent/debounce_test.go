package agent

import (
	"testing"
	"time"
)

func TestDebounce(t *testing.T) {
	const ms = time.Millisecond
	tests := map[string]struct {
		minPeriod, lastBatchTime time.Duration
		rested                   time.Duration // since the last batch
		waited                   time.Duration // since the change came
		want                     time.Duration // 0 or less is at once
	}{
		"after a rest":                {rested: time.Second, want: 5*ms - time.Second},
		"right after a batch":         {want: 5 * ms},
		"while the loop was busy":     {waited: 5 * ms, want: 0},
		"a little after a batch":      {rested: 2 * ms, want: 3 * ms},
		"batches that take long":      {lastBatchTime: 20 * ms, waited: time.Second, want: 20 * ms},
		"batches that take very long": {lastBatchTime: time.Second, waited: time.Second, want: maxDebounce},
		"the least time is not over":  {minPeriod: time.Second, rested: 300 * ms, waited: time.Second, want: 700 * ms},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			d := debounce{coalesce: 5 * ms, minPeriod: tt.minPeriod, ended: noon.Add(-tt.rested), lastBatchTime: tt.lastBatchTime}
			if got := d.afterChange(noon.Add(-tt.waited), noon); got != tt.want {
				t.Errorf("the change waits for %s, want %s", got, tt.want)
			}
		})
	}
}

// The time of a batch counts only if the batch followed another at once.
func TestDebounceAfterBatches(t *testing.T) {
	d := debounce{coalesce: 5 * time.Millisecond}
	now := noon
	for _, step := range []struct{ rest, took, want time.Duration }{
		{time.Second, 30 * time.Millisecond, 0},
		{4 * time.Millisecond, 30 * time.Millisecond, 30 * time.Millisecond},
		{34 * time.Millisecond, 10 * time.Millisecond, 10 * time.Millisecond},
		{20 * time.Millisecond, 10 * time.Millisecond, 0},
	} {
		began := now.Add(step.rest)
		now = began.Add(step.took)
		d.batchDone(began, now)
		if d.lastBatchTime != step.want {
			t.Errorf("a batch of %s after a rest of %s: the next waits for %s, want %s", step.took, step.rest, d.lastBatchTime, step.want)
		}
	}
}
