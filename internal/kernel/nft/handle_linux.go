package nft

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nfnetlink"
)

// Handle reads and writes our tables in one network namespace. Any number of goroutines may use it.
type Handle struct {
	caller *nfnetlink.Caller
	ns     nfnetlink.Namespace

	mu    sync.Mutex
	ports []uint32 // ports of the sockets opened last
}

const (
	// share is how many times the time-out of one exchange a read or a pass may take. A read is
	// some ten dumps, and a pass with refusals is several transactions.
	share = 6
	// buffer is the size of the kernel's buffer for a transaction, and for the errors of one.
	buffer = 16 << 20
	// portsKept is how many ports of sockets are kept: notifications of their transactions may be late.
	portsKept = 8
)

// New returns a handle on the network namespace that the calling thread is in; lock the goroutine to
// its thread before entering another one. New asks the kernel nothing.
func New(log *zap.Logger, opts Options) (*Handle, error) {
	ns, err := nfnetlink.CurrentNamespace()
	if err != nil {
		return nil, fmt.Errorf("open nftables: %w", err)
	}
	h := &Handle{ns: ns}
	h.caller = newCaller(log, opts, h.open)
	return h, nil
}

func newCaller(log *zap.Logger, opts Options, open func() (nfnetlink.Socket, error)) *nfnetlink.Caller {
	opts = opts.Defaults()
	log = log.Named("nft")
	return nfnetlink.NewCaller(nfnetlink.Options{
		Timeout: opts.Timeout, Called: opts.Called,
		LeftBehind: func(err error) { log.Warn("nftables did not answer, the call is abandoned", zap.Error(err)) },
	}, open)
}

// open opens a socket and keeps its port.
func (h *Handle) open() (nfnetlink.Socket, error) {
	c, err := nfnetlink.Inside(h.ns, func() (*nfnetlink.Conn, error) { return nfnetlink.Open(buffer) })
	if errors.Is(err, unix.EPROTONOSUPPORT) {
		err = fmt.Errorf("%w: %w", ErrUnsupported, err)
	}
	if err != nil {
		return nil, err
	}
	port, err := c.Port()
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ports = append(h.ports, port); len(h.ports) > portsKept {
		h.ports = h.ports[1:]
	}
	return c, nil
}

// Close releases the namespace. The Handle cannot be used afterwards.
func (h *Handle) Close() {
	h.caller.Close()
	h.ns.Close()
}

// Wrote reports whether a transaction whose notification carries this port was one of the Handle.
func (h *Handle) Wrote(port uint32) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Contains(h.ports, port)
}

// Read returns our tables, their chains with the rules, and the headers of their sets, all of one
// moment. A kernel without nf_tables has none.
func (h *Handle) Read(ctx context.Context) (Ruleset, error) {
	out, err := call(ctx, h, func(s session) (Ruleset, error) { return s.ruleset() })
	if errors.Is(err, unix.EPROTONOSUPPORT) { // no nfnetlink either
		return newRuleset(0), nil
	}
	if err != nil {
		return Ruleset{}, fmt.Errorf("read nftables tables %s: %w", TableName, err)
	}
	return out, nil
}

// Generation returns the number of the last transaction of any program, on any table. It is 0 where
// the kernel has no nf_tables.
func (h *Handle) Generation(ctx context.Context) (uint32, error) {
	out, err := call(ctx, h, func(s session) (uint32, error) {
		n, err := s.generation()
		if errors.Is(err, errAbsent) {
			err = nil
		}
		return n, err
	})
	if err != nil {
		return 0, fmt.Errorf("read the generation of nftables: %w", err)
	}
	return out, nil
}

// Elements returns the header of a set and its elements, all of one moment, in no order. An error
// that matches ErrNotExist means that the set does not exist, ErrForeign that it has an element that
// this package does not write. Of a set with Other the header alone is read.
func (h *Handle) Elements(ctx context.Context, k Key) (Set, []Element, error) {
	if err := k.check(); err != nil {
		return Set{}, nil, fmt.Errorf("read set %s: %w", k, err)
	}
	type found struct {
		set  Set
		list []Element
	}
	out, err := call(ctx, h, func(s session) (found, error) {
		set, list, err := s.elements(k)
		return found{set, list}, err
	})
	if err != nil {
		return out.set, nil, fmt.Errorf("read set %s: %w", k, err)
	}
	return out.set, out.list, nil
}

// Apply writes a pass in one transaction, so that packets meet all of it or nothing. A row that the
// kernel refuses is taken out and has its error; the others are written. Deletions of what does not
// exist are successes. When the kernel does not answer, the rows are of unknown state and all have
// that error: read them again.
func (h *Handle) Apply(ctx context.Context, p Pass) Outcome { return h.apply(ctx, p, false) }

// Check finds which rows of a pass the kernel would refuse, and changes nothing.
func (h *Handle) Check(ctx context.Context, p Pass) Outcome { return h.apply(ctx, p, true) }

func (h *Handle) apply(ctx context.Context, p Pass, check bool) Outcome {
	out, err := call(ctx, h, func(s session) (Outcome, error) {
		state := newPass(p, check)
		return state.apply(s), state.broken
	})
	if err != nil && out.Err() == nil {
		return Refuse(p, err)
	}
	return out
}

// call runs one use of a socket. An error closes the socket.
func call[T any](ctx context.Context, h *Handle, use func(session) (T, error)) (T, error) {
	out, err := nfnetlink.Do(ctx, h.caller, share, func(s *nfnetlink.Session) (T, error) { return use(session{s}) })
	return out, err
}
