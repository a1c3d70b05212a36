package daemon

import (
	"runtime"
	"strings"
	"testing"
	"time"
)

// waitHere is found by its name in the profile.
//
//go:noinline
func waitHere() { <-time.After(10 * blockSample) }

// waitsCounted returns how many waits in waitHere the profile has. The profile keeps them as
// long as the process runs.
func waitsCounted(t *testing.T) (n int64) {
	t.Helper()
	records := make([]runtime.BlockProfileRecord, 10_000)
	used, all := runtime.BlockProfile(records)
	if !all {
		t.Fatalf("the profile has %d records", used)
	}
	for _, r := range records[:used] {
		frames := runtime.CallersFrames(r.Stack())
		for more := true; more; {
			var frame runtime.Frame
			if frame, more = frames.Next(); strings.HasSuffix(frame.Function, ".waitHere") {
				n += r.Count
			}
		}
	}
	return n
}

func TestWaitsAreProfiledOnDemand(t *testing.T) {
	before := waitsCounted(t)
	stop := profileWaits(false)
	waitHere()
	stop()
	if n := waitsCounted(t); n != before {
		t.Fatalf("%d waits were counted without profiling", n-before)
	}
	stop = profileWaits(true)
	waitHere()
	stop()
	if n := waitsCounted(t); n == before {
		t.Error("a wait was not counted with profiling")
	}
}
