package link

import "context"

// WithKind makes a handle keep a link of another type than dummy, so that the
// contract runs on kernels that were built without dummy links.
func (o Options) WithKind(kind string) Options {
	o.kind = kind
	return o
}

// WithWatchBuffer bounds the events that may wait for a busy watch.
func (o Options) WithWatchBuffer(bytes int) Options {
	o.watchBuffer = bytes
	return o
}

// Stall makes a call that the kernel holds until release is closed, whatever its
// deadline, as it holds one that waits for the routing lock.
func (h *Handle) Stall(ctx context.Context, release <-chan struct{}) error {
	_, err := call(ctx, h, func(*conn) (struct{}, error) { <-release; return struct{}{}, nil })
	return err
}

// BreakSocket makes the next call find its socket dead.
func (h *Handle) BreakSocket() {
	<-h.turn
	h.socket.close()
	h.turn <- struct{}{}
}
