package connlimit

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
func Bound(most int) func(net.Conn, http.ConnState) { return (&limiter{most: most}).changed }

// A limiter counts the connections of one listener.
type limiter struct {
	most int

	mu sync.Mutex
	// waiting are connections without a request under way, the oldest first.
	waiting []net.Conn
	open    int
}

func (l *limiter) changed(conn net.Conn, state http.ConnState) {
	if victim := l.follow(conn, state); victim != nil {
		_ = victim.Close() // the server notices, and comes back with StateClosed
	}
}

func (l *limiter) follow(conn net.Conn, state http.ConnState) (victim net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting = slices.DeleteFunc(l.waiting, func(other net.Conn) bool { return other == conn })
	switch state {
	case http.StateNew:
		l.open++
		l.waiting = append(l.waiting, conn)
		if l.open > l.most {
			victim = l.waiting[0]
			l.waiting = slices.Delete(l.waiting, 0, 1)
		}
	case http.StateIdle:
		l.waiting = append(l.waiting, conn)
	case http.StateClosed, http.StateHijacked:
		l.open--
	case http.StateActive:
	}
	return victim
}
