package main

import (
	"os"
	"runtime"
)

// leastThreads is how many goroutines may run at once until everything was written once, on
// one processor until the rules were that no source decides. Go runs no more than there are
// processors, and one that comes back from a call of the kernel waits for its turn, 10 ms for
// each that computes meanwhile: on a small node the loop, which makes many such calls, would
// wait for whatever decodes what comes. With more threads the kernel shares the processors
// among them. Later less is decoded at a time, and threads that look for work cost more than
// they gain: an eighth of 50 changes a second. On one processor nothing is decoded while the
// loop writes a part, and it shared the processor with such threads: writing entries of sets
// took four times as long.
const leastThreads = 4

// quietThreads is how many run at once while little changes. Whatever becomes ready while
// another thread is idle has that look for work, which was a sixth of what a lone change
// costs, though it has nothing that runs at the same time. Under 50 changes a second one alone
// would make each wait half as long again.
const quietThreads = 1

// moreThreads, usualThreads and fewThreads set how many run at once, unless the environment
// says so (GOMAXPROCS, https://pkg.go.dev/runtime).
func moreThreads() {
	setThreads(func() { runtime.GOMAXPROCS(max(leastThreads, runtime.GOMAXPROCS(0))) })
}

// usualThreads leaves it to Go again.
func usualThreads() { setThreads(runtime.SetDefaultGOMAXPROCS) }

func fewThreads() { setThreads(func() { runtime.GOMAXPROCS(quietThreads) }) }

func setThreads(set func()) {
	if os.Getenv("GOMAXPROCS") == "" {
		set()
	}
}
