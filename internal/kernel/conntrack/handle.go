package conntrack

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"

	"go.uber.org/zap"
)

// Handle reads and changes the table of one network namespace. Its methods may be
// called by several goroutines; two sweeps at a time are under way, so that a long
// one holds up no short one, and others wait.
type Handle struct {
	log    *zap.Logger
	opts   Options
	opener opener
	held   atomic.Int32 // calls that the kernel has not come back from
	all    atomic.Bool  // the kernel answers a filtered dump with everything
	sizes  sync.Map     // int by size: the lengths of the last dumps of whole protocols

	hands  chan *hand // those that no sweep uses
	closed chan struct{}
	once   sync.Once
}

// hand is the part of the kernel that a sweep uses; one sweep at a time has it.
type hand struct {
	dumps, kills *line  // nil until needed and after a failure
	seq          uint32 // sequence number of the last message that was made
	out          []byte // deletions that were not sent yet
}

// handCount is how many sweeps are under way at a time.
const handCount = 2

var errClosed = errors.New("handle is closed")

// newHandle asks the kernel a question that costs nothing.
func newHandle(log *zap.Logger, opts Options, o opener) (*Handle, error) {
	h := &Handle{log: log.Named("conntrack"), opts: opts.Defaults(), opener: o, hands: make(chan *hand, handCount), closed: make(chan struct{})}
	for range handCount {
		h.hands <- &hand{}
	}
	if err := h.probe(context.Background()); err != nil {
		h.Close()
		return nil, fmt.Errorf("open connection tracking: %w", err)
	}
	return h, nil
}

// Close waits for sweeps that are under way and gives the sockets back. Later calls
// fail.
func (h *Handle) Close() {
	h.once.Do(func() {
		close(h.closed)
		for range handCount {
			n := <-h.hands
			h.drop(&n.dumps)
			h.drop(&n.kills)
		}
		_ = h.opener.Close()
	})
}

// take waits for a hand, which give returns.
func (h *Handle) take(ctx context.Context) (*hand, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	select {
	case <-h.closed:
		return nil, errClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	case n := <-h.hands:
		return n, nil
	}
}

func (h *Handle) give(n *hand) { h.hands <- n }

// probe asks how many flows there are. Where the kernel has no ctnetlink the
// subsystem is unknown to it; asking makes it load the module where that works.
func (h *Handle) probe(ctx context.Context) error {
	n, err := h.take(ctx)
	if err != nil {
		return err
	}
	defer h.give(n)
	if err := h.ready(&n.dumps); err != nil {
		return err
	}
	n.seq++
	request := appendHeader(nil, getStats, flagAck, n.seq, 0)
	sealMessage(request, 0)
	var errno syscall.Errno
	err = h.exchange(ctx, n.dumps, h.opts.Deadline, request, func(datagram []byte) (bool, error) {
		return digest(datagram, n.seq, n.seq, func(m message) (bool, error) {
			if m.kind != typeError {
				return false, nil // the number itself
			}
			errno = m.verdict()
			return true, nil
		})
	})
	switch {
	case err != nil:
		h.drop(&n.dumps)
		return err
	case errno == syscall.EINVAL || errno == syscall.EOPNOTSUPP:
		return fmt.Errorf("nf_conntrack_netlink is not there, load it: %w (%w)", ErrUnsupported, errno)
	case errno != 0:
		return errno
	}
	return nil
}

// Sweep deletes the stale flows to the keys of some orders. Keys of both families
// may be mixed; the last order for a key counts. After an error the orders may be
// carried out in part, and the outcome tells what was done; to sweep again is
// right in any case.
func (h *Handle) Sweep(ctx context.Context, orders []Order) (Outcome, error) {
	var total Outcome
	n, err := h.take(ctx)
	if err != nil {
		return total, err
	}
	defer h.give(n)
	var errs []error
	for _, family := range []uint8{4, 6} {
		w := newWanted(family, orders)
		if len(w.orders) == 0 {
			continue
		}
		s := sweep{Handle: h, hand: n, wanted: w}
		if err := s.run(ctx); err != nil {
			errs = append(errs, fmt.Errorf("sweep IPv%d flows to %d keys: %w", family, len(w.orders), err))
		}
		total.add(s.outcome)
	}
	return total, errors.Join(errs...)
}
