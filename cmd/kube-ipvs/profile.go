package main

import (
	"runtime"
	"time"
)

// blockSample: a goroutine that waited this long for another is counted for sure, a shorter wait with a chance that makes up for it. Who
// counts every wait pays for it at each.
const blockSample = 10 * time.Microsecond

// profileWaits has the runtime count where goroutines wait for one another, for /debug/pprof/block, until the returned function is called.
// Without --profiling nobody could read it, and nothing is counted.
func profileWaits(profiling bool) (stop func()) {
	if !profiling {
		return func() {}
	}
	runtime.SetBlockProfileRate(int(blockSample.Nanoseconds()))
	return func() { runtime.SetBlockProfileRate(0) }
}
