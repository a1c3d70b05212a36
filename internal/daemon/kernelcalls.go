package daemon

import (
	"sync/atomic"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/wiring"
)

// callsObserver is called after each kernel call with the package, the duration and the error.
type callsObserver = func(pkg string, took time.Duration, err error)

// calls passes the kernel calls of all handles to an observer. Handles are opened before there is
// one.
type calls struct {
	observer atomic.Pointer[callsObserver]
}

// of returns the observer for the handles of one kernel package.
func (c *calls) of(pkg string) wiring.CallObserver {
	return func(took time.Duration, err error) {
		if observe := c.observer.Load(); observe != nil {
			(*observe)(pkg, took, err)
		}
	}
}

// observe sets the observer of all later calls.
func (c *calls) observe(f callsObserver) { c.observer.Store(&f) }
