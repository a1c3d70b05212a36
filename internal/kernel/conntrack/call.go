package conntrack

import (
	"context"
	"fmt"
	"io"
	"time"
)

// wire is one netlink socket: Send puts messages to the kernel and Receive takes
// one datagram that the kernel sent. Either may block for any time.
type wire interface {
	Send([]byte) error
	Receive([]byte) (int, error)
	io.Closer
}

// opener opens sockets in the network namespace that New was called in, whatever
// thread asks for one later.
type opener interface {
	open() (wire, error)
	io.Closer
}

// receiveSize is the most that the kernel puts into one datagram of a dump.
const receiveSize = 32 << 10

// line is a socket with what belongs to it. A line that failed is given up as a
// whole: late answers may still come, and a call that was abandoned may still use
// the buffer.
type line struct {
	wire wire
	in   []byte
}

// heldLimit bounds the threads that wait in the kernel for an abandoned call: each such call costs
// one.
const heldLimit = 4

// ready makes sure of a line.
func (h *Handle) ready(l **line) error {
	if *l != nil {
		return nil
	}
	if h.held.Load() >= heldLimit {
		return fmt.Errorf("%d earlier calls are still held by the kernel: %w", heldLimit, ErrBusy)
	}
	w, err := h.opener.open()
	if err != nil {
		return err
	}
	*l = &line{wire: w, in: make([]byte, receiveSize)}
	return nil
}

// drop gives a line up. Closing may wait for a call that is stuck in the kernel, so it happens on
// another goroutine.
func (h *Handle) drop(l **line) {
	if *l != nil {
		go func(w wire) { _ = w.Close() }((*l).wire)
		*l = nil
	}
}

// bounded makes one blocking call and comes back at the deadline at the latest,
// even where the thread is stuck inside the kernel. After an error the line is of
// no use any more.
func (h *Handle) bounded(ctx context.Context, deadline time.Duration, use func() (int, error)) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	type result struct {
		n   int
		err error
	}
	done, start := make(chan result, 1), time.Now()
	h.held.Add(1)
	go func() {
		n, err := use()
		h.held.Add(-1)
		done <- result{n, err}
	}()
	select {
	case r := <-done:
		h.opts.Called(time.Since(start), r.err)
		if r.err != nil {
			return 0, fmt.Errorf("%w: %w", ErrBusy, r.err)
		}
		return r.n, nil
	case <-ctx.Done():
		h.opts.Called(time.Since(start), ctx.Err())
		return 0, fmt.Errorf("no answer from the kernel: %w: %w", ErrBusy, ctx.Err())
	}
}

// exchange sends messages and hands over datagrams until each has seen the last
// of the answers, none of which takes longer than the deadline. After an error the
// line is of no use any more.
func (h *Handle) exchange(ctx context.Context, l *line, deadline time.Duration, request []byte, each func([]byte) (done bool, err error)) error {
	_, err := h.bounded(ctx, deadline, func() (int, error) { return 0, l.wire.Send(request) })
	for done := false; !done && err == nil; {
		var n int
		if n, err = h.bounded(ctx, deadline, func() (int, error) { return l.wire.Receive(l.in) }); err == nil {
			done, err = each(l.in[:n])
		}
	}
	return err
}

// digest hands over the messages of one datagram that answer first to last.
func digest(datagram []byte, first, last uint32, visit func(message) (done bool, err error)) (done bool, err error) {
	for len(datagram) > 0 && !done && err == nil {
		var m message
		if m, datagram, err = cutMessage(datagram); err == nil && m.seq-first <= last-first {
			done, err = visit(m)
		}
	}
	return done, err
}
