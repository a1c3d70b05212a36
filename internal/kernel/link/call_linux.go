package link

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/vishvananda/netlink/nl"
)

const (
	// callBuffer holds the answers of a whole slice that failed.
	callBuffer = 1 << 20
	// stuckLimit bounds the threads that wait in the kernel for abandoned calls.
	stuckLimit = 4
)

var errClosed = errors.New("handle is closed")

type outcome[T any] struct {
	value T
	err   error
}

// call runs use on the socket and comes back at the deadline at the latest. The
// kernel works through a request while the sender is inside its system call, and
// waits there for the routing lock without listening to signals or time-outs.
// So use runs on a goroutine of its own, which a late call leaves behind together
// with the socket; its data must therefore not be shared with the caller.
func call[T any](ctx context.Context, h *Handle, use func(*conn) (T, error)) (T, error) {
	var zero T
	ctx, cancel := context.WithTimeout(ctx, h.opts.Timeout)
	defer cancel()
	select {
	case <-h.turn:
		defer func() { h.turn <- struct{}{} }()
	case <-ctx.Done():
		return zero, fmt.Errorf("wait for a turn: %w: %w", ErrBusy, ctx.Err())
	case <-h.alive.Done():
		return zero, errClosed
	}
	if err := h.reopen(ctx); err != nil {
		return zero, err
	}
	h.count.calls.Add(1)
	c, done, start := h.socket, make(chan outcome[T], 1), time.Now()
	go func() {
		value, err := use(c)
		done <- outcome[T]{value, err}
	}()
	select {
	case out := <-done:
		h.opts.Called(time.Since(start), out.err)
		if c.broken {
			h.drop()
		}
		return out.value, out.err
	case <-ctx.Done():
		h.opts.Called(time.Since(start), ctx.Err())
		h.count.timeouts.Add(1)
		h.socket = nil
		h.stuck.Add(1)
		c.interrupt()
		go func() {
			<-done
			c.close()
			h.stuck.Add(-1)
		}()
		return zero, fmt.Errorf("no answer from the kernel: %w: %w", ErrBusy, ctx.Err())
	}
}

// reopen makes sure of a socket. The caller has the turn.
func (h *Handle) reopen(ctx context.Context) error {
	switch {
	case h.alive.Err() != nil:
		return errClosed
	case ctx.Err() != nil:
		return fmt.Errorf("start a call: %w: %w", ErrBusy, ctx.Err())
	case h.socket != nil:
		return nil
	case h.stuck.Load() >= stuckLimit:
		return fmt.Errorf("%d earlier calls are still held by the kernel: %w", stuckLimit, ErrBusy)
	}
	var err error
	h.socket, err = h.dial()
	return err
}

func (h *Handle) dial() (*conn, error) {
	c, err := h.ns.dial(callBuffer, 0)
	if err == nil && h.opened {
		h.count.reopened.Add(1)
	}
	h.opened = true
	return c, err
}

// drop closes the socket. The caller has the turn.
func (h *Handle) drop() {
	if h.socket != nil {
		h.socket.close()
		h.socket = nil
	}
}

func (h *Handle) batch(ctx context.Context, reqs ...*nl.NetlinkRequest) ([]error, error) {
	return call(ctx, h, func(c *conn) ([]error, error) { return c.batch(reqs) })
}

// one sends a single request that has no answer but success or failure.
func (h *Handle) one(ctx context.Context, req *nl.NetlinkRequest) error {
	errs, err := h.batch(ctx, req)
	if err != nil {
		return err
	}
	return errs[0]
}

func (h *Handle) device(ctx context.Context, req *nl.NetlinkRequest) (device, error) {
	return call(ctx, h, func(c *conn) (d device, err error) {
		err = c.query(req, func(m syscall.NetlinkMessage) { d, _ = parseLink(m) })
		return d, err
	})
}
