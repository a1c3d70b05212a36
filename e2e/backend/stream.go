package backend

import (
	"context"
	"net/netip"
	"sync"
	"time"
)

// Load is a series of requests to one address.
type Load struct {
	Proto   Proto
	To      netip.AddrPort
	Source  netip.Addr    // invalid: the kernel's choice
	Timeout time.Duration // timeout of each request
	OneConn bool          // all requests over one connection, which HTTP has not
	Hold    bool          // connections stay open until the last request is answered
	Life    time.Duration // with OneConn: an older connection is closed before the next request, and replaced; 0: never
}

// Repeat makes n requests, one after the other, and stops early when ctx ends.
func (l Load) Repeat(ctx context.Context, n int) *Tally {
	var tally Tally
	var open connections
	defer open.close()
	for range n {
		if ctx.Err() != nil {
			break
		}
		tally.Add(l.one(ctx, &open))
	}
	return &tally
}

// Stream starts rate requests a second until ctx ends, answered or not: a stalled backend must not slow the stream that is to
// show the stall. It returns when each request has its outcome. With OneConn requests follow each other instead, for a
// connection carries one at a time.
func (l Load) Stream(ctx context.Context, rate float64) *Tally {
	var tally Tally
	var open connections
	defer open.close()
	var mu sync.Mutex // guards tally
	var running sync.WaitGroup
	tick := time.NewTicker(time.Duration(float64(time.Second) / rate))
	defer tick.Stop()
	for ctx.Err() == nil {
		request := func() {
			reply, err := l.one(context.WithoutCancel(ctx), &open) // the end of the stream is no failure of its last requests
			mu.Lock()
			defer mu.Unlock()
			tally.Add(reply, err)
		}
		if l.OneConn {
			request()
		} else {
			running.Go(request)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	running.Wait()
	return &tally
}

// Streams runs n streams side by side, which begin one after the other within the time between two requests, and joins their tallies.
func (l Load) Streams(ctx context.Context, n int, rate float64) *Tally {
	tallies := make([]*Tally, n)
	var running sync.WaitGroup
	apart := time.Duration(float64(time.Second) / rate / float64(n))
	for i := range n {
		running.Go(func() {
			select {
			case <-time.After(time.Duration(i) * apart):
				tallies[i] = l.Stream(ctx, rate)
			case <-ctx.Done():
				tallies[i] = &Tally{}
			}
		})
	}
	running.Wait()
	all := &Tally{}
	for _, one := range tallies {
		all.join(one)
	}
	return all
}

func (l Load) one(ctx context.Context, open *connections) (Reply, error) {
	ctx, cancel := context.WithTimeout(ctx, l.Timeout)
	defer cancel()
	conn := open.reusable(l.OneConn)
	if conn != nil && l.Life > 0 && time.Since(conn.opened) > l.Life {
		open.drop(conn)
		conn = nil
	}
	if conn == nil {
		var err error
		if conn, err = Dial(ctx, l.Proto, l.To, l.Source); err != nil {
			return Reply{}, err
		}
		open.add(conn)
	}
	reply, err := conn.Ask(ctx)
	if err != nil || !l.OneConn && !l.Hold {
		open.drop(conn) // a broken connection is never asked again
	}
	return reply, err
}

// connections are those that stay open between requests.
type connections struct {
	mu   sync.Mutex
	list []*Conn
}

func (c *connections) reusable(wanted bool) *Conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !wanted || len(c.list) == 0 {
		return nil
	}
	return c.list[0]
}

func (c *connections) add(conn *Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list = append(c.list, conn)
}

func (c *connections) drop(conn *Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, other := range c.list {
		if other == conn {
			c.list = append(c.list[:i], c.list[i+1:]...)
			break
		}
	}
	conn.Close()
}

func (c *connections) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.list {
		conn.Close()
	}
	c.list = nil
}
