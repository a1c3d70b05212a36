package vserver

import (
	"context"
	"fmt"
	"time"
)

// heldLimit bounds the threads that wait in the kernel for abandoned calls: each such call costs
// one, and Go ends a process with too many threads.
const heldLimit = 4

// free fails with ErrBusy while the kernel holds as many abandoned calls as we
// let it have. Asked between calls, when none of the calls in the count is ours.
func (h *Handle) free() error {
	if h.held.Load() >= heldLimit {
		return fmt.Errorf("%d earlier calls are still held by the kernel: %w", heldLimit, ErrBusy)
	}
	return nil
}

// bounded makes one blocking call and returns at the deadline at the latest, even if the thread is
// stuck in the kernel. Such a call is abandoned, so its resources must not be used again.
func bounded[T any](ctx context.Context, h *Handle, use func() (T, error)) (T, error) {
	var none T
	type result struct {
		value T
		err   error
	}
	done, start := make(chan result, 1), time.Now()
	deadline := time.NewTimer(h.opts.CallTimeout)
	defer deadline.Stop()
	h.held.Add(1)
	go func() {
		value, err := use()
		h.held.Add(-1)
		done <- result{value, err}
	}()
	select {
	case r := <-done:
		h.opts.Called(time.Since(start), r.err)
		return r.value, r.err
	case <-deadline.C:
		h.opts.Called(time.Since(start), context.DeadlineExceeded)
		return none, context.DeadlineExceeded
	case <-ctx.Done():
		h.opts.Called(time.Since(start), ctx.Err())
		return none, ctx.Err()
	}
}
