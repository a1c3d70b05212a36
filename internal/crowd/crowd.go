package httpd

import (
	"net"
	"net/http"
	"slices"
	"sync"
)

// mostConns is how many connections a listener keeps open. A kubelet, a load balancer and a
// scraper need one each.
const mostConns = 256

// crowd bounds the open connections of a server. The one too many costs the connection that
// has waited longest for a request its place, so that clients that only hold connections
// cannot keep a probe out. Where all are being answered, the newest goes.
type crowd struct {
	most int

	mu sync.Mutex
	// waiting are connections without a request under way, the oldest first.
	waiting []net.Conn
	open    int
}

// changed follows a connection; it is the ConnState of the server.
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
