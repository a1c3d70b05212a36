package agent

import (
	"sync/atomic"
	"time"
)

// rounds knows what audits cost, and how they fail. took, rest and failures are for any
// goroutine.
type rounds struct {
	spent      time.Duration // on the round in progress
	wrote      time.Duration // on rows, before there was a round
	failed     error         // what that could not read
	failures   atomic.Uint64
	took, rest atomic.Int64 // of the latest round, and until the next one, in nanoseconds
}

// first returns how long the first round waits: as long as one after a round that took an
// auditShare-th of what writing took. What was just written need not be read at once.
func (r *rounds) first(period time.Duration) (rest time.Duration) {
	rest = restAfter(r.wrote/auditShare, period)
	r.wrote = 0
	r.rest.Store(int64(rest))
	return rest
}

// done ends a round and returns how long the next one waits.
func (r *rounds) done(period time.Duration) (rest time.Duration) {
	rest = restAfter(r.spent, period)
	r.took.Store(int64(r.spent))
	r.rest.Store(int64(rest))
	r.spent = 0
	return rest
}

func restAfter(cost, period time.Duration) time.Duration {
	return time.Duration(float64(period) * min(max(1, float64(cost)/float64(auditCost)), longestRest))
}
