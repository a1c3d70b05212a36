package main

import (
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

func TestThreads(t *testing.T) {
	t.Cleanup(runtime.SetDefaultGOMAXPROCS)
	runtime.SetDefaultGOMAXPROCS()
	usual := runtime.GOMAXPROCS(0)
	for _, tt := range []struct {
		name, env                    string
		set                          int
		starting, later, quiet, busy int
	}{
		{"a small node", "", 1, leastThreads, usual, quietThreads, usual},
		{"a large one", "", 64, 64, usual, quietThreads, usual},
		{"told how many", "3", 3, 3, 3, 3, 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("GOMAXPROCS", tt.env)
			runtime.GOMAXPROCS(tt.set)
			synctest.Test(t, func(t *testing.T) {
				want := func(when string, want int) {
					t.Helper()
					synctest.Wait()
					if got := runtime.GOMAXPROCS(0); got != want {
						t.Errorf("%s: %d at once, want %d", when, got, want)
					}
				}
				passes := func(th *threads, n int, every time.Duration) {
					for range n {
						th.pass(time.Now())
						time.Sleep(every)
					}
				}
				th := newThreads()
				want("in the start", tt.starting)
				passes(th, 3*quietPasses, time.Second)
				want("in a long start", tt.starting)
				th.start()
				want("after it", tt.later)
				passes(th, 2, 2*time.Second)
				want("while little changes", tt.quiet)
				passes(th, quietPasses, time.Millisecond)
				want("with a few changes in a row", tt.quiet)
				passes(th, 1, time.Millisecond)
				want("with one more", tt.busy)
				passes(th, 200, 20*time.Millisecond)
				want("while much changes", tt.busy)
				time.Sleep(time.Minute)
				passes(th, 1, time.Minute)
				want("with a change a minute later", tt.busy) // which was the end of a busy second
				passes(th, 1, time.Minute)
				want("with the next", tt.quiet)
			})
		})
	}
}
