package crowd

import (
	"net"
	"net/http"
	"slices"
	"sync"
)

// Most is how many connections a listener keeps open by default. A kubelet, a load balancer and
// a scraper need one each.
const Most = 256

// Bound returns the ConnState of a server that is to keep so many connections open.
func Bound(most int) func(net.Conn, http.ConnState) { return (&crowd{most: most}).changed }

type crowd struct {
	most int

	mu sync.Mutex
	// waiting are connections without a request under way, the oldest first.
	waiting []net.Conn
	open    int
}

func (c *crowd) changed(conn net.Conn, state http.ConnState) {
	if victim := c.follow(conn, state); victim != nil {
		_ = victim.Close() // the server notices, and comes back with StateClosed
	}
}

func (c *crowd) follow(conn net.Conn, state http.ConnState) (victim net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting = slices.DeleteFunc(c.waiting, func(other net.Conn) bool { return other == conn })
	switch state {
	case http.StateNew:
		c.open++
		c.waiting = append(c.waiting, conn)
		if c.open > c.most {
			victim = c.waiting[0]
			c.waiting = slices.Delete(c.waiting, 0, 1)
		}
	case http.StateIdle:
		c.waiting = append(c.waiting, conn)
	case http.StateClosed, http.StateHijacked:
		c.open--
	case http.StateActive:
	}
	return victim
}
