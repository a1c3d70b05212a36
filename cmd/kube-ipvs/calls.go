package main

import (
	"sync/atomic"
	"time"
)

// called is told of a kernel call how long it took, and what came of it.
type called = func(took time.Duration, err error)

// calls takes what the handles of the kernel rooms tell of their calls to whoever shows
// it: the handles are open before anybody is there to do so.
type calls struct {
	teller atomic.Pointer[func(room string, took time.Duration, err error)]
}

// of is the ear for the calls of one room.
func (c *calls) of(room string) called {
	return func(took time.Duration, err error) {
		if tell := c.teller.Load(); tell != nil {
			(*tell)(room, took, err)
		}
	}
}

// tell has calls from now on shown.
func (c *calls) tell(tell func(room string, took time.Duration, err error)) { c.teller.Store(&tell) }
