package load

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Run is load that goes on until it is stopped.
type Run struct {
	stop  atomic.Bool
	ended chan struct{}
	err   error // why it ended by itself; to be read when ended

	mu     sync.Mutex // guards engine, which is the thread's but between two of its turns
	engine *engine
}

// Start begins, and returns when the thread is where it should be. The run goes on until Stop, or until ctx ends.
func Start(ctx context.Context, p Profile) (*Run, error) {
	if err := p.validate(); err != nil {
		return nil, fmt.Errorf("load: %w", err)
	}
	if p.Enter == nil {
		p.Enter = func(f func() error) error { return f() }
	}
	r := &Run{ended: make(chan struct{})}
	begun := make(chan struct{})
	forget := context.AfterFunc(ctx, func() { r.stop.Store(true) })
	go func() {
		defer close(r.ended)
		defer forget()
		r.err = p.Enter(func() error { return r.work(p, begun) })
	}()
	select {
	case <-begun:
	case <-r.ended:
		return nil, fmt.Errorf("load: begin: %w", cmp.Or(r.err, errNotRun))
	}
	return r, nil
}

var errNotRun = errors.New("the profile's Enter did not call its function")

// Stop starts nothing more, waits until everything under way has its outcome, asks the long connections a last time, closes
// them, and tells. It may be called again.
func (r *Run) Stop() (Report, error) {
	r.stop.Store(true)
	<-r.ended
	return r.Report(), r.err
}

// Report tells how it stands.
func (r *Run) Report() Report {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.engine.told()
}

// batch is how many events are taken at once.
const batch = 256

// work is the thread.
func (r *Run) work(p Profile, begun chan<- struct{}) error {
	e, err := newEngine(p)
	if err != nil {
		return err
	}
	defer e.close()
	r.engine = e
	close(begun)
	events := make([]unix.EpollEvent, batch)
	for {
		n, err := unix.EpollWait(e.epoll, events, e.pause())
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("wait for sockets: %w", err)
		}
		if !r.turn(events[:max(n, 0)]) {
			return nil
		}
	}
}

// turn does the work that is due, and reports whether there is more to come.
func (r *Run) turn(events []unix.EpollEvent) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.engine
	e.now = time.Since(e.report.Began)
	e.report.Took = e.now
	for _, event := range events {
		e.happened(event)
	}
	if len(events) < batch { // or answers are waiting that came in time
		e.expire()
	}
	if r.stop.Load() {
		e.finish()
		return e.pending > 0
	}
	e.openLong()
	e.askDue()
	e.startDue()
	return true
}
