package link

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"go.uber.org/zap"
)

// Handle speaks to the kernel about one link of one network namespace. All
// methods may be called by several goroutines; calls take turns.
type Handle struct {
	log    *zap.Logger
	opts   Options
	ns     namespace
	turn   chan struct{} // holds one token: the goroutine that has it owns socket
	socket *conn         // nil until needed and after a failure
	opened bool          // under turn: a socket existed before, the next one counts as reopened
	stuck  atomic.Int32  // abandoned calls that the kernel still holds
	alive  context.Context
	end    context.CancelFunc

	watching  atomic.Bool
	ownEvents ownEvents
	defaults  defaultRoutes
	count     totals
}

// totals are the Counters while they are written from several goroutines.
type totals struct {
	calls, rows, failed, timeouts, interrupted, reopened, overruns, events atomic.Uint64
}

// New returns a handle for the network namespace of the calling thread. It opens
// a socket to see that it can; it does not need the link to exist.
func New(log *zap.Logger, opts Options) (*Handle, error) {
	ns, err := currentNamespace()
	if err != nil {
		return nil, err
	}
	h := &Handle{log: log.Named("link"), opts: opts.withDefaults(), ns: ns, turn: make(chan struct{}, 1)}
	h.alive, h.end = context.WithCancel(context.Background())
	if h.socket, err = h.dial(); err != nil {
		h.end()
		ns.close()
		return nil, err
	}
	h.turn <- struct{}{}
	return h, nil
}

// Ensure makes the link exist and reports whether it had to create it. An existing dummy link is
// used as it is, even if another program created it; a link of another type is ErrExist. A kernel
// that cannot make dummy links is ErrUnsupported.
func (h *Handle) Ensure(ctx context.Context) (created bool, err error) {
	_, err = h.ours(ctx)
	if !errors.Is(err, ErrNotExist) {
		return false, err
	}
	err = h.create(ctx)
	if errors.Is(err, ErrExist) {
		// Another process created the link between the two calls; it is used as it is.
		_, err = h.ours(ctx)
		return false, err
	}
	if err != nil {
		return false, fmt.Errorf("create %s link %s: %w", h.opts.kind, h.opts.Name, err)
	}
	return true, nil
}

// There reports whether the link exists.
func (h *Handle) There(ctx context.Context) (bool, error) {
	_, err := h.ours(ctx)
	if errors.Is(err, ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// Remove deletes the link with all its addresses. A link that is not there is a success; one of
// another type is left alone and is ErrExist. On a link with thousands of addresses the kernel may
// need longer than one deadline: it continues after ErrBusy, and a later call succeeds.
func (h *Handle) Remove(ctx context.Context) error {
	d, err := h.ours(ctx)
	if errors.Is(err, ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	h.ownEvents.expectRemoval(d.index)
	err = h.one(ctx, delLink(d.index))
	if err == nil || errors.Is(err, ErrNotExist) {
		return nil
	}
	h.ownEvents.cancelRemoval(d.index)
	return fmt.Errorf("delete link %s: %w", h.opts.Name, err)
}

// Counters returns the totals so far.
func (h *Handle) Counters() Counters {
	return Counters{
		Calls:       h.count.calls.Load(),
		Rows:        h.count.rows.Load(),
		Failed:      h.count.failed.Load(),
		Timeouts:    h.count.timeouts.Load(),
		Interrupted: h.count.interrupted.Load(),
		Reopened:    h.count.reopened.Load(),
		Overruns:    h.count.overruns.Load(),
		Events:      h.count.events.Load(),
	}
}

// Close ends a running Watch and releases the socket. Later calls fail.
func (h *Handle) Close() {
	if h.alive.Err() != nil {
		return
	}
	h.end()
	<-h.turn
	h.drop()
	h.ns.close()
}

// create makes the link and keeps link-local addresses off it.
func (h *Handle) create(ctx context.Context) error {
	errs, err := h.batch(ctx, newLink(h.opts.Name, h.opts.kind), noLinkLocal(h.opts.Name))
	if err != nil {
		return err
	}
	if errs[0] == nil && errs[1] != nil {
		// A kernel without IPv6 has nothing to set; a link that stays down gets no
		// link-local address in any case.
		h.log.Debug("cannot turn off IPv6 address generation", zap.String("link", h.opts.Name), zap.Error(errs[1]))
	}
	return errs[0]
}

// ours finds the link and refuses one that is of another type.
func (h *Handle) ours(ctx context.Context) (device, error) {
	d, err := h.device(ctx, linkByName(h.opts.Name))
	if err != nil {
		return d, fmt.Errorf("find link %s: %w", h.opts.Name, err)
	}
	if d.kind != h.opts.kind {
		return d, fmt.Errorf("use link %s as %s link: a link of type %q %w", h.opts.Name, h.opts.kind, d.kind, ErrExist)
	}
	return d, nil
}
