package source

import (
	"sync"
	"sync/atomic"
	"time"
)

// Turns is how sources and the loop share one processor: while the loop holds it, sources
// neither bring anything nor read on. What waits has been read already, or waits in the
// buffers of the kernel, so nothing is lost and nothing is asked for again. Its zero value is
// nobody's turn, and so is nil. It is safe for concurrent use.
type Turns struct{ held atomic.Pointer[turn] }

// turn is what the sources wait for, but for a few objects.
type turn struct {
	few  atomic.Int64 // that may still be brought
	over chan struct{}
}

// Hold keeps back who brings Services and slices, all but the first few, until release is
// called, but no longer than limit. Once as many have been brought, nothing is read any more
// either. One holds at a time.
func (t *Turns) Hold(few int, limit time.Duration) (release func()) {
	mine := &turn{over: make(chan struct{})}
	mine.few.Store(int64(few))
	end := sync.OnceFunc(func() { close(mine.over) })
	timer := time.AfterFunc(limit, end)
	t.held.Store(mine)
	return func() {
		timer.Stop()
		t.held.CompareAndSwap(mine, nil)
		end()
	}
}

// Bring waits for the turn of a source that has an object.
func (t *Turns) Bring() {
	if h := t.current(); h != nil && h.few.Add(-1) < 0 {
		<-h.over
	}
}

// Read waits for the turn of a source that would read more.
func (t *Turns) Read() {
	if h := t.current(); h != nil && h.few.Load() <= 0 {
		<-h.over
	}
}

func (t *Turns) current() *turn {
	if t == nil {
		return nil
	}
	return t.held.Load()
}
