package vserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"syscall"
	"time"

	"go.uber.org/zap"
)

// Options tune a Handle. The zero value of a field means its default.
type Options struct {
	// CallTimeout bounds every single kernel call, besides the caller's context;
	// a batch or a dump of many calls may take longer in all. Default 5 s.
	CallTimeout time.Duration
	// ChunkRows is how many rows share a system call. More than about a thousand
	// gains nothing and holds the kernel's lock longer. Default 512.
	ChunkRows int
	// DumpAttempts is how often an interrupted dump is started. Default 4.
	DumpAttempts int
	// Called gets the duration and the result of each kernel call; it may be nil.
	Called func(took time.Duration, err error)
}

// Defaults fills in what was left at zero.
func (o Options) Defaults() Options {
	if o.CallTimeout <= 0 {
		o.CallTimeout = 5 * time.Second
	}
	if o.ChunkRows <= 0 {
		o.ChunkRows = 512
	}
	if o.DumpAttempts <= 0 {
		o.DumpAttempts = 4
	}
	if o.Called == nil {
		o.Called = func(time.Duration, error) {}
	}
	return o
}

// Counters count since New. They prove what a change cost: one changed weight
// is one message, one row, one send and no dump.
type Counters struct {
	Messages uint64 // netlink messages sent
	Rows     uint64 // messages that wrote a row, repeats of a converging row included
	Sends    uint64 // system calls they were sent with
	Dumps    uint64 // table reads started, repeats of interrupted ones and counts included
	Reopened uint64 // sockets given up and opened again
}

// Handle is a connection to the IPVS tables of one network namespace. One
// goroutine uses it; it has no locks.
type Handle struct {
	log    *zap.Logger
	opts   Options
	opener opener
	wire   wire   // nil after a failure: opened again by the next call
	family uint16 // 0: to be asked for, as a module loaded again gets a new one
	seq    uint32
	out    buffer // reused; both are given up with the socket, because a call
	in     []byte // that was abandoned may still use them
	count  Counters
	// Of the last batch and chunk, to be used again: memory that is new to a process costs more
	// than what is put into it.
	todo    []row
	answers []answer
	// servers is how many there are: in the list, or table, when it was read last, and
	// what was written since.
	servers int
	survey  survey
	held    atomic.Int32 // calls the kernel has not come back from
}

// wire is one netlink socket: send puts one buffer of messages to the kernel
// and receive takes one datagram. Either may block for any time.
type wire interface {
	Send([]byte) error
	Receive([]byte) (int, error)
	// PortID is the address that answers to this socket carry.
	PortID() uint32
	// SendLimit is the largest buffer that Send takes, in bytes.
	SendLimit() int
	io.Closer
}

// opener opens sockets in the network namespace that New was called in,
// whichever thread asks for it later.
type opener interface {
	open() (wire, error)
	// list opens the kernel's list of that namespace, as text.
	list() (io.ReadCloser, error)
	io.Closer
}

// largestDatagram is what the kernel fills in a dump at most, whatever it is offered, and
// receiveSize has room for another one: small answers are fetched by one call.
const (
	largestDatagram = 32 << 10
	receiveSize     = 2 * largestDatagram
)

// newHandle opens the first socket and finds the kernel's IPVS family.
func newHandle(log *zap.Logger, opts Options, o opener) (*Handle, error) {
	h := &Handle{log: log.Named("vserver"), opts: opts.Defaults(), opener: o}
	if err := h.ready(context.Background()); err != nil {
		h.Close()
		return nil, fmt.Errorf("open ipvs: %w", err)
	}
	h.count = Counters{}
	return h, nil
}

// Close gives the socket back. The Handle is of no use afterwards.
func (h *Handle) Close() {
	if h.wire != nil {
		_ = h.wire.Close()
		h.wire = nil
	}
	h.survey.end()
	_ = h.opener.Close()
}

// Counters returns what the Handle has done since New.
func (h *Handle) Counters() Counters { return h.count }

// ready makes sure of a socket and of the family's number.
func (h *Handle) ready(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := h.free(); err != nil {
		return err
	}
	if h.wire == nil {
		w, err := h.opener.open()
		if errors.Is(err, syscall.EPROTONOSUPPORT) { // a kernel without generic netlink, which IPVS needs
			err = fmt.Errorf("%w: %w", ErrUnsupported, err)
		}
		if err != nil {
			return fmt.Errorf("open generic netlink socket: %w", err)
		}
		h.wire, h.family = w, 0
		h.in = make([]byte, receiveSize)
	}
	if h.family != 0 {
		return nil
	}
	return h.resolve(ctx)
}

// drop gives the socket up. Closing may wait for a call that is stuck in the kernel, so it happens
// on another goroutine.
func (h *Handle) drop(reason error) {
	if h.wire == nil {
		return
	}
	h.log.Warn("IPVS did not answer, its socket is abandoned", zap.Error(reason))
	h.count.Reopened++
	go func(w wire) { _ = w.Close() }(h.wire)
	h.wire, h.out, h.in = nil, nil, nil
}

// call runs one blocking use of the socket under the deadline. After a failure
// the socket is given up, and with it the buffers an abandoned call may use.
func (h *Handle) call(ctx context.Context, use func(wire) (int, error)) (int, error) {
	w := h.wire
	n, err := bounded(ctx, h, func() (int, error) { return use(w) })
	if err != nil {
		h.drop(err)
	}
	return n, err
}

// transact sends the messages in h.out and hands the answers to visit until it
// is done. Messages that do not answer sequence numbers from first on are left
// out. The kernel has worked through the whole buffer when the send returns, so
// the answers are fetched in the same call.
func (h *Handle) transact(ctx context.Context, messages int, first uint32, visit visitor) error {
	h.count.Sends++
	h.count.Messages += uint64(messages)
	out, in, last := h.out, h.in, h.seq
	n, err := h.call(ctx, func(w wire) (int, error) {
		if err := w.Send(out); err != nil {
			return 0, err
		}
		return receive(w, in, last)
	})
	for err == nil {
		var done bool
		if done, err = h.dispatch(in[:n], first, visit); done || err != nil {
			return err
		}
		n, err = h.call(ctx, func(w wire) (int, error) { return receive(w, in, last) })
	}
	return fmt.Errorf("exchange %d messages: %w", messages, err)
}

// receive takes datagrams until one ends the answer to the message of the given number, as
// long as there is room for another one. Each is a system call; the goroutine and the clock
// of a call under a deadline cost several of them.
func receive(w wire, in []byte, last uint32) (n int, err error) {
	for {
		got, err := w.Receive(in[n:])
		if err != nil {
			return 0, err
		}
		if ends(in[n:n+got], last) || len(in)-n-got < largestDatagram {
			return n + got, nil
		}
		n += align4(got)
	}
}

// ends reports whether a datagram has the verdict of that message, or cannot be parsed.
func ends(datagram []byte, last uint32) bool {
	for len(datagram) > 0 {
		m, rest, err := nextMessage(datagram)
		if err != nil || m.seq == last && (m.kind == nlError || m.kind == nlDone) {
			return true
		}
		datagram = rest
	}
	return false
}

// visitor takes the answers one by one and reports which is the last.
type visitor func(message) (done bool, err error)

// dispatch hands the messages of one datagram to visit.
func (h *Handle) dispatch(datagram []byte, first uint32, visit visitor) (done bool, err error) {
	port := h.wire.PortID()
	for len(datagram) > 0 && !done && err == nil {
		var m message
		if m, datagram, err = nextMessage(datagram); err != nil {
			break
		}
		if m.port == port && m.seq-first <= h.seq-first {
			done, err = visit(m)
		}
	}
	if errors.Is(err, errMalformed) {
		h.drop(err) // more of the answer may be left in the socket
	}
	return done, err
}
