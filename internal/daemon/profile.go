package daemon

import (
	"runtime"
	"time"
)

// blockSample is the block profile rate: a wait of this time is always recorded, a shorter one with a proportional chance.
// Recording every wait would slow each one down.
const blockSample = 10 * time.Microsecond

// profileWaits enables the block profile, for /debug/pprof/block, until the returned function is called. Without --profiling no
// client can read it, and nothing is recorded.
func profileWaits(profiling bool) (stop func()) {
	if !profiling {
		return func() {}
	}
	runtime.SetBlockProfileRate(int(blockSample.Nanoseconds()))
	return func() { runtime.SetBlockProfileRate(0) }
}
