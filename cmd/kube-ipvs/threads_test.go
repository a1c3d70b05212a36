package main

import (
	"runtime"
	"testing"
)

func TestThreads(t *testing.T) {
	t.Cleanup(runtime.SetDefaultGOMAXPROCS)
	runtime.SetDefaultGOMAXPROCS()
	usual := runtime.GOMAXPROCS(0)
	for _, tt := range []struct {
		name, env              string
		set                    int
		starting, later, quiet int
	}{
		{"a small node", "", 1, leastThreads, usual, quietThreads},
		{"a large one", "", 64, 64, usual, quietThreads},
		{"told how many", "3", 3, 3, 3, 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("GOMAXPROCS", tt.env)
			runtime.GOMAXPROCS(tt.set)
			moreThreads()
			if got := runtime.GOMAXPROCS(0); got != tt.starting {
				t.Errorf("%d in the start, want %d", got, tt.starting)
			}
			usualThreads()
			if got := runtime.GOMAXPROCS(0); got != tt.later {
				t.Errorf("%d later, want %d", got, tt.later)
			}
			fewThreads()
			if got := runtime.GOMAXPROCS(0); got != tt.quiet {
				t.Errorf("%d while little changes, want %d", got, tt.quiet)
			}
		})
	}
}
