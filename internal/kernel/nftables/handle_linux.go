package nftables

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

// Handle reaches the tables of one network namespace. Any number of goroutines
// may use it; calls that do not meet share one socket, which stays open.
type Handle struct {
	log    *zap.Logger
	opts   Options
	open   func() (wire, error)
	listen func() (ear, error)
	ns     namespace
	held   atomic.Int32 // calls the kernel has not come back from

	mu     sync.Mutex
	idle   *exchange // waits for the next call; nil while one uses it
	closed bool
}

// heldLimit bounds the threads that wait inside the kernel for nobody.
const heldLimit = 4

// New returns a handle on the network namespace that the calling thread is in;
// lock the goroutine to its thread before entering another one. It asks the
// kernel nothing.
func New(log *zap.Logger, opts Options) (*Handle, error) {
	ns, err := currentNamespace()
	if err != nil {
		return nil, fmt.Errorf("open nftables: %w", err)
	}
	return &Handle{log: log.Named("nftables"), opts: opts.Defaults(), open: ns.dial, listen: ns.listen, ns: ns}, nil
}

// Close gives the namespace back. The Handle is of no use afterwards.
func (h *Handle) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.idle != nil {
		_ = h.idle.wire.Close()
	}
	h.idle, h.closed = nil, true
	h.ns.close()
}

// List reads the names of all tables, whoever made them. A kernel without
// nf_tables has none. Asking lets the kernel load the module by itself.
func (h *Handle) List(ctx context.Context) (map[Key]struct{}, error) {
	tables, err := call(ctx, h, (*exchange).list)
	if err != nil {
		return nil, fmt.Errorf("list nftables tables: %w", err)
	}
	if tables == nil {
		tables = map[Key]struct{}{}
	}
	return tables, nil
}

// Generation is a number that the kernel raises with every transaction on tables
// of any family, by whomever; it wraps around. What is read while it stays the
// same is still true. A kernel without nf_tables has 0.
func (h *Handle) Generation(ctx context.Context) (uint32, error) {
	generation, err := call(ctx, h, (*exchange).generation)
	if err != nil {
		return 0, fmt.Errorf("read generation of nftables: %w", err)
	}
	return generation, nil
}

// Leads tells whether a rule of a chain has a verdict that leads to another chain: a
// jump, or a goto. A table or chain that is not there leads nowhere.
func (h *Handle) Leads(ctx context.Context, table Key, chain, target string) (bool, error) {
	if err := table.Check(); err != nil {
		return false, err
	}
	leads, err := call(ctx, h, func(x *exchange) (bool, error) { return x.leads(table, chain, target) })
	if err != nil {
		return false, fmt.Errorf("read rules of chain %s of table %s: %w", chain, table, err)
	}
	return leads, nil
}

// filterShare is how many times as long as another call Filters may take, for it makes
// several dumps for each table.
const filterShare = 6

// Filters reads what packets to, through and from this machine meet in base chains of
// tables of IP, whoever made them, tables of iptables-nft included. All is of one moment.
// A kernel without nf_tables has none.
func (h *Handle) Filters(ctx context.Context) ([]Filter, error) {
	out, err := callWithin(ctx, h, filterShare*h.opts.Timeout, (*exchange).filters)
	if err != nil {
		return nil, fmt.Errorf("read filters of nftables: %w", err)
	}
	return out, nil
}

// Delete removes tables with all that is in them, in one transaction: packets see
// all of them or none. The errors are aligned with the keys; a nil slice means
// that none of the tables exists any more. If one cannot be deleted none is, and
// the errors of the others name it. After a time-out nobody knows; List tells.
func (h *Handle) Delete(ctx context.Context, keys []Key) []error {
	if len(keys) == 0 {
		return nil
	}
	if errs := CheckAll(keys); errs != nil {
		return errs
	}
	faults, err := call(ctx, h, func(x *exchange) (map[Key]error, error) { return x.remove(unique(keys)) })
	if len(faults) == 0 && err == nil {
		return nil
	}
	return Together(keys, faults, err)
}

// call runs one use of a socket and comes back at the deadline at the latest. The
// kernel works through a request while the sender is inside its system call, and
// does not listen to time-outs there: such a call is left behind.
func call[T any](ctx context.Context, h *Handle, use func(*exchange) (T, error)) (T, error) {
	return callWithin(ctx, h, h.opts.Timeout, use)
}

// callWithin is call with a deadline of its own.
func callWithin[T any](ctx context.Context, h *Handle, limit time.Duration, use func(*exchange) (T, error)) (T, error) {
	var none T
	if err := ctx.Err(); err != nil {
		return none, err
	}
	if h.held.Load() >= heldLimit {
		return none, fmt.Errorf("%w: %d earlier calls are still held by the kernel", ErrBusy, heldLimit)
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	x, err := h.take()
	if errors.Is(err, unix.EPROTONOSUPPORT) { // no nfnetlink either
		return none, nil
	}
	if err != nil {
		return none, fmt.Errorf("open netlink socket: %w", err)
	}
	type outcome struct {
		value T
		err   error
	}
	done, start := make(chan outcome, 1), time.Now()
	h.held.Add(1)
	go func() {
		value, err := use(x)
		h.held.Add(-1)
		done <- outcome{value, err}
	}()
	select {
	case out := <-done:
		h.opts.Called(time.Since(start), out.err)
		h.give(x, out.err)
		return out.value, out.err
	case <-ctx.Done():
		h.opts.Called(time.Since(start), ctx.Err())
		x.wire.Interrupt()
		go func() {
			<-done
			_ = x.wire.Close()
		}()
		h.log.Warn("nftables call left behind", zap.Error(ctx.Err()))
		return none, fmt.Errorf("no answer from the kernel: %w: %w", ErrBusy, ctx.Err())
	}
}

// take gives the socket that waits for use, or a new one.
func (h *Handle) take() (*exchange, error) {
	h.mu.Lock()
	x := h.idle
	h.idle = nil
	h.mu.Unlock()
	if x != nil {
		return x, nil
	}
	s, err := h.open()
	if err != nil {
		return nil, err
	}
	return &exchange{wire: s}, nil
}

// give takes a socket back. After a failure answers may still be under way to it.
func (h *Handle) give(x *exchange, failed error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if failed == nil && h.idle == nil && !h.closed {
		h.idle = x
		return
	}
	_ = x.wire.Close()
}
