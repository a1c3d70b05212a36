package main

import (
	"os"
	"runtime"
)

// leastThreads is how many goroutines may run at once until everything was written once. Go
// runs no more than there are processors, and one that comes back from a call of the kernel
// waits for its turn, 10 ms for each that computes meanwhile: on a small node the loop, which
// makes many such calls, would wait for whatever decodes what comes. With more threads the
// kernel shares the processors among them. Later little is decoded at a time, and threads
// that look for work cost more than they do: an eighth of 50 changes a second.
const leastThreads = 4

// moreThreads does so, unless the environment says how many (GOMAXPROCS,
// https://pkg.go.dev/runtime).
func moreThreads() {
	if os.Getenv("GOMAXPROCS") == "" && runtime.GOMAXPROCS(0) < leastThreads {
		runtime.GOMAXPROCS(leastThreads)
	}
}

// usualThreads leaves it to Go again.
func usualThreads() {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.SetDefaultGOMAXPROCS()
	}
}
