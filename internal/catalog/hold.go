package catalog

import (
	"sync"
	"sync/atomic"
	"time"
)

// gate is closed for who brings something, but for a few.
type gate struct {
	few  atomic.Int64 // that may still pass
	open chan struct{}
}

// Hold keeps back who brings Services and slices, all but the first few, until release is
// called, but no longer than limit: a node with one processor writes what it has before it
// reads on. What waits has been read already, so nothing is lost and nothing is asked for
// again. One holds at a time.
func (c *Catalog) Hold(few int, limit time.Duration) (release func()) {
	g := &gate{open: make(chan struct{})}
	g.few.Store(int64(few))
	end := sync.OnceFunc(func() { close(g.open) })
	timer := time.AfterFunc(limit, end)
	c.gate.Store(g)
	return func() {
		timer.Stop()
		c.gate.CompareAndSwap(g, nil)
		end()
	}
}

// pass waits while somebody holds.
func (c *Catalog) pass() {
	if g := c.gate.Load(); g != nil && g.few.Add(-1) < 0 {
		<-g.open
	}
}
