package nfnetlink

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/netkey"
)

// Caller makes calls with a deadline. Any number of goroutines may use it; calls that do not
// overlap share one socket, which stays open.
type Caller struct {
	opts Options
	open func() (Socket, error)
	held atomic.Int32 // calls that the kernel has not returned from

	mu     sync.Mutex
	idle   *Session // waits for the next call; nil while one uses it
	closed bool
}

// heldLimit bounds the threads that wait inside the kernel for calls that were left behind.
const heldLimit = 4

// NewCaller returns a Caller that gets its sockets from open.
func NewCaller(opts Options, open func() (Socket, error)) *Caller {
	return &Caller{opts: opts, open: open}
}

// Close closes the socket that waits for the next call. No later call keeps one open.
func (c *Caller) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.idle != nil {
		_ = c.idle.Close()
	}
	c.idle, c.closed = nil, true
}

// Do runs one use of a socket and returns after share times the time-out at the latest. An error that
// matches netkey.ErrBusy means that the kernel did not answer in time, or holds too many earlier calls.
func Do[T any](ctx context.Context, c *Caller, share int, use func(*Session) (T, error)) (T, error) {
	var none T
	if err := ctx.Err(); err != nil {
		return none, err
	}
	if c.held.Load() >= heldLimit {
		return none, fmt.Errorf("%w: the kernel still holds %d earlier calls", netkey.ErrBusy, heldLimit)
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(share)*c.opts.Timeout)
	defer cancel()
	s, err := c.take()
	if err != nil {
		return none, fmt.Errorf("open netlink socket: %w", err)
	}
	type outcome struct {
		value T
		err   error
	}
	done, start := make(chan outcome, 1), time.Now()
	c.held.Add(1)
	go func() {
		value, err := use(s)
		c.held.Add(-1)
		done <- outcome{value, err}
	}()
	select {
	case out := <-done:
		c.opts.Called(time.Since(start), out.err)
		c.give(s, out.err)
		return out.value, out.err
	case <-ctx.Done():
		c.opts.Called(time.Since(start), ctx.Err())
		s.Interrupt()
		go func() {
			<-done
			_ = s.Close()
		}()
		c.opts.LeftBehind(ctx.Err())
		return none, fmt.Errorf("no answer from the kernel: %w: %w", netkey.ErrBusy, ctx.Err())
	}
}

// take returns the socket that waits for use, or a new one.
func (c *Caller) take() (*Session, error) {
	c.mu.Lock()
	s := c.idle
	c.idle = nil
	c.mu.Unlock()
	if s != nil {
		return s, nil
	}
	socket, err := c.open()
	if err != nil {
		return nil, err
	}
	return &Session{Socket: socket}, nil
}

// give takes a socket back. After a failure answers may still be under way to it.
func (c *Caller) give(s *Session, failed error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if failed == nil && c.idle == nil && !c.closed {
		c.idle = s
		return
	}
	_ = s.Close()
}
