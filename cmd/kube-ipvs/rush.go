package main

import (
	"sync"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/agent"
)

// quietChanges are the most Services in a second that are little. A change and what drains
// after it are two or three.
const quietChanges = 8

// rush knows whether much changes, and has the process follow: how many threads it uses, and
// when it gives memory back.
type rush struct {
	memory memory
	turn   sync.Mutex // held by the goroutine that follows, while there is one

	mu      sync.Mutex
	started bool // everything was written once
	much    bool
	since   time.Time // of which changes are counted
	changes int
}

// start ends the start, which leaves the most garbage there ever is. What follows on it may
// be much.
func (r *rush) start() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.started = true
	r.rises(r.memory.giveBack)
}

// changed counts Services that were written.
func (r *rush) changed(services int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changes += services
	if r.much {
		return
	}
	if now := time.Now(); now.Sub(r.since) >= time.Second {
		r.since, r.changes = now, services
	}
	if r.started && r.changes > quietChanges {
		r.rises(func() {})
	}
}

// rises has a goroutine follow until little changes. It may wait for a garbage collection,
// which the loop does not.
func (r *rush) rises(first func()) {
	r.much, r.changes = true, 0
	go func() {
		r.turn.Lock()
		defer r.turn.Unlock()
		usualThreads()
		first()
		for r.goesOn() {
		}
		fewThreads()
		r.memory.calm()
	}()
}

// goesOn waits for a second, and tells whether much changed in it.
func (r *rush) goesOn() bool {
	time.Sleep(time.Second)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.much = r.changes > quietChanges
	r.since, r.changes = time.Now(), 0
	return r.much
}

// cycled is an observer of the loop that tells rush, too.
type cycled struct {
	agent.Observer
	rush *rush
	// external is called with the number of Services that have external IPs.
	external func(int)
}

// Counts implements agent.Observer.
func (o cycled) Counts(c agent.Counts) {
	o.Observer.Counts(c)
	o.external(c.External)
}

// Cycle implements agent.Observer.
func (o cycled) Cycle(c agent.Cycle) {
	o.Observer.Cycle(c)
	o.rush.changed(max(1, c.Services))
}
