package main

import (
	"runtime"
	"runtime/debug"
	"testing"
	"testing/synctest"
	"time"
)

// While much changes there are the usual threads, and otherwise few; where garbage was
// collected meanwhile, memory is given back at the end.
func TestRush(t *testing.T) {
	t.Setenv("GOMAXPROCS", "")
	t.Setenv("GOGC", "")
	defer debug.SetGCPercent(debug.SetGCPercent(100))
	defer runtime.SetDefaultGOMAXPROCS()
	runtime.SetDefaultGOMAXPROCS()
	usual := runtime.GOMAXPROCS(0)
	for _, tt := range []struct {
		name  string
		write func(r *rush)
		much  bool
	}{
		{"nothing", func(*rush) {}, false},
		{"a few at once", func(r *rush) { r.changed(quietChanges) }, false},
		{"one after the other", func(r *rush) { every(200*time.Millisecond, 3*quietChanges, r) }, false},
		{"many at once", func(r *rush) { r.changed(quietChanges + 1) }, true},
		{"many", func(r *rush) { every(20*time.Millisecond, 200, r) }, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				want := func(when string, threads int) {
					t.Helper()
					synctest.Wait()
					if got := runtime.GOMAXPROCS(0); got != threads {
						t.Errorf("%s: %d goroutines run at once, want %d", when, got, threads)
					}
				}
				moreThreads()
				var r rush
				every(20*time.Millisecond, 200, &r)
				want("in the start", max(leastThreads, usual))
				r.start()
				want("after it", usual)
				time.Sleep(2100 * time.Millisecond)
				want("at rest", quietThreads)
				if got := debug.SetGCPercent(garbageShare); got != garbageShare {
					t.Errorf("GOGC %d after the start", got)
				}
				r.memory.collections-- // as if garbage had been collected
				before := r.memory.collections
				for range 2 {
					tt.write(&r)
					busy := quietThreads
					if tt.much {
						busy = usual
					}
					want("with changes", busy)
					time.Sleep(2100 * time.Millisecond)
					want("at rest again", quietThreads)
				}
				if gave := r.memory.collections != before; gave != tt.much {
					t.Errorf("memory was given back: %t", gave)
				}
			})
		})
	}
}

// every has n Services change, one at a time.
func every(d time.Duration, n int, r *rush) {
	for range n {
		r.changed(1)
		time.Sleep(d)
	}
}
