package main

import (
	"runtime/pprof"
	"strings"
	"testing"
	"time"
)

// waitHere is found by its name in the profile.
//
//go:noinline
func waitHere() { <-time.After(10 * blockSample) }

func waitsSeen(t *testing.T) bool {
	t.Helper()
	var text strings.Builder
	if err := pprof.Lookup("block").WriteTo(&text, 1); err != nil {
		t.Fatal(err)
	}
	return strings.Contains(text.String(), "waitHere")
}

func TestWaitsAreProfiledOnDemand(t *testing.T) {
	stop := profileWaits(false)
	waitHere()
	stop()
	if waitsSeen(t) {
		t.Fatal("a wait was counted without profiling")
	}
	stop = profileWaits(true)
	waitHere()
	stop()
	if !waitsSeen(t) {
		t.Error("a wait was not counted with profiling")
	}
}
