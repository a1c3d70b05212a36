package agent

import (
	"sync/atomic"
	"time"
)

// rounds knows what audits cost, and how they fail. took, rest and failures are for any
// goroutine.
type rounds struct {
	spent      time.Duration // on the round in progress
	failed     error         // what that could not read
	failures   atomic.Uint64
	took, rest atomic.Int64 // of the latest round, and until the next one, in nanoseconds
}

// done ends a round and returns how long the next one waits.
func (r *rounds) done(period time.Duration) (rest time.Duration) {
	rest = time.Duration(float64(period) * min(max(1, float64(r.spent)/float64(auditCost)), longestRest))
	r.took.Store(int64(r.spent))
	r.rest.Store(int64(rest))
	r.spent = 0
	return rest
}
