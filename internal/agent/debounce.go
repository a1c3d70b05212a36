package agent

import "time"

// maxDebounce bounds how long a batch waits because the batch before took long.
const maxDebounce = 50 * time.Millisecond

// A debounce decides how long a batch of changes waits for more of them. It reads no clock, and belongs
// to the loop goroutine.
type debounce struct {
	coalesce  time.Duration // how long after a batch the next one waits
	minPeriod time.Duration // the least time between two batches
	ended     time.Time     // when the last batch was written
	// lastBatchTime is how long the last batch took, if it followed the one before at once; else 0.
	lastBatchTime time.Duration
}

// afterChange returns how long a change waits that came at since: until coalesce after the last batch, or
// after the change itself where the loop was busy meanwhile. So a single change does not wait, and a
// burst becomes two batches.
func (d *debounce) afterChange(since, now time.Time) time.Duration {
	return d.nextBatchDelay(d.coalesce-max(now.Sub(d.ended), now.Sub(since)), now)
}

// nextBatchDelay returns how long the next batch waits, at least as long as least. Where one batch
// follows another, as on a slow or busy machine, it waits for as long as the last one took. So there are
// fewer and larger batches, which cost less in total.
func (d *debounce) nextBatchDelay(least time.Duration, now time.Time) time.Duration {
	pause := max(min(d.lastBatchTime, maxDebounce), d.minPeriod)
	return max(least, pause-now.Sub(d.ended))
}

// batchDone records that a batch is written which began at that time.
func (d *debounce) batchDone(began, now time.Time) {
	followed := began.Sub(d.ended) < d.coalesce+min(d.lastBatchTime, maxDebounce)
	if d.ended, d.lastBatchTime = now, 0; followed {
		d.lastBatchTime = now.Sub(began)
	}
}
