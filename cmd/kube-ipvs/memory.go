package main

import (
	"os"
	"runtime/debug"
)

// garbageShare is how much garbage may lie about, in percent of what is in use, before it
// is collected. Most of what is in use is there for good and changes are small, so less
// than Go's 100 costs little: the node's memory belongs to its pods.
const garbageShare = 50

// boundMemory has garbage collected earlier than Go would, unless the environment says
// when (GOGC, https://pkg.go.dev/runtime).
func boundMemory() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(garbageShare)
	}
}

// giveBackMemory gives the garbage of the start, which is the most there ever is, back to
// the node. It takes some milliseconds for each 10 MiB in use, beside everything else.
func giveBackMemory() { go debug.FreeOSMemory() }
