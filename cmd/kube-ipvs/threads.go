package main

import (
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/agent"
)

// leastThreads is how many goroutines may run at once until everything was written once. Go
// runs no more than there are processors, and one that comes back from a call of the kernel
// waits for its turn, 10 ms for each that computes meanwhile: on a small node the loop, which
// makes many such calls, would wait for whatever decodes what comes. With more threads the
// kernel shares the processors among them. Later less is decoded at a time, and threads that
// look for work cost more than they gain: an eighth of 50 changes a second.
const leastThreads = 4

// quietThreads is how many run at once while little changes. Whatever becomes ready while
// another thread is idle has that look for work, which was a sixth of what a lone change
// costs, though it has nothing that runs at the same time. Under 50 changes a second one alone
// would make each wait half as long again.
const quietThreads = 1

// quietPasses are the most in a second that are little. A change and what drains after it are
// two or three.
const quietPasses = 8

// threads has as many goroutines run at once as there is use for, unless the environment says
// how many (GOMAXPROCS, https://pkg.go.dev/runtime).
type threads struct {
	fixed bool
	set   sync.Mutex // held while Go is told

	mu      sync.Mutex
	started bool // everything was written once
	busy    bool
	since   time.Time // of which passes are counted
	passes  int
}

// newThreads has many run for the start.
func newThreads() *threads {
	t := &threads{fixed: os.Getenv("GOMAXPROCS") != ""}
	if !t.fixed && runtime.GOMAXPROCS(0) < leastThreads {
		runtime.GOMAXPROCS(leastThreads)
	}
	return t
}

// start ends the start. What follows on it may be much.
func (t *threads) start() {
	t.mu.Lock()
	t.started, t.busy, t.passes, t.since = true, true, 0, time.Now()
	t.mu.Unlock()
	t.tell()
}

// pass counts one of the loop's, and follows at once when they become many, and with the next
// one when they were few for a second.
func (t *threads) pass(at time.Time) {
	t.mu.Lock()
	was := t.busy
	if at.Sub(t.since) >= time.Second {
		t.busy = t.busy && t.passes > quietPasses
		t.since, t.passes = at, 0
	}
	t.passes++
	t.busy = t.busy || t.passes > quietPasses
	changed := t.started && t.busy != was
	t.mu.Unlock()
	if changed {
		go t.tell() // it waits for the end of a collection, which the loop does not
	}
}

// tell has Go follow what is known by now.
func (t *threads) tell() {
	if t.fixed {
		return
	}
	t.set.Lock()
	defer t.set.Unlock()
	t.mu.Lock()
	busy := t.busy
	t.mu.Unlock()
	if busy {
		runtime.SetDefaultGOMAXPROCS()
	} else {
		runtime.GOMAXPROCS(quietThreads)
	}
}

// counting is an observer of the loop that counts its passes for threads, too.
type counting struct {
	agent.Observer
	threads *threads
}

// Pass implements agent.Observer.
func (c counting) Pass(p agent.Pass) {
	c.Observer.Pass(p)
	c.threads.pass(p.At)
}
