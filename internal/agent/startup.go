package agent

import "time"

// bootstrapTTL is how long a read of the kernel is used while the sources are not in sync. The
// audit finds what changed since.
const bootstrapTTL = 30 * time.Second

// progress owns how far the agent has come since its start. It reads no clock, and belongs to the loop
// goroutine.
type progress struct {
	synced   bool // every source has delivered what it can
	complete bool // and could read all of it
	loaded   bool // the kernel was read
	adopted  bool // and the rows found in it were logged
	ready    bool // a pass left nothing to do
	// bootstrapping: the kernel carried nothing when it was read, and has the base rows by now.
	bootstrapping bool
	readAt        time.Time // when the kernel was read, or written, before the sources were in sync
}

// stale reports whether a read from before the sources were in sync is too old to be used.
func (p *progress) stale(now time.Time) bool { return now.Sub(p.readAt) > bootstrapTTL }

// invalidateStaleLoad drops a stale reading of the kernel.
func (p *progress) invalidateStaleLoad(now time.Time) {
	if !p.synced && p.loaded && p.stale(now) {
		p.loaded, p.adopted, p.bootstrapping = false, false, false
	}
}
