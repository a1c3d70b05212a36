package nftables

import (
	"context"
	"errors"
	"fmt"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nfnetlink"
)

// Handle reads and deletes the tables of one network namespace. Any number of goroutines may use it;
// calls that do not overlap share one socket, which stays open.
type Handle struct {
	caller *nfnetlink.Caller
	listen func() (ear, error)
	ns     nfnetlink.Namespace
}

// New returns a handle on the network namespace that the calling thread is in;
// lock the goroutine to its thread before entering another one. It asks the
// kernel nothing.
func New(log *zap.Logger, opts Options) (*Handle, error) {
	ns, err := nfnetlink.CurrentNamespace()
	if err != nil {
		return nil, fmt.Errorf("open nftables: %w", err)
	}
	open := func() (nfnetlink.Socket, error) {
		return nfnetlink.Inside(ns, func() (nfnetlink.Socket, error) { return nfnetlink.Open(0) })
	}
	h := newHandle(log, opts, open)
	h.ns, h.listen = ns, func() (ear, error) { return nfnetlink.Inside(ns, openEar) }
	return h, nil
}

func newHandle(log *zap.Logger, opts Options, open func() (nfnetlink.Socket, error)) *Handle {
	opts, log = opts.Defaults(), log.Named("nftables")
	return &Handle{caller: nfnetlink.NewCaller(nfnetlink.Options{
		Timeout: opts.Timeout, Called: opts.Called,
		LeftBehind: func(err error) { log.Warn("nftables did not answer, the call is abandoned", zap.Error(err)) },
	}, open)}
}

// Close releases the namespace. The Handle cannot be used afterwards.
func (h *Handle) Close() {
	h.caller.Close()
	h.ns.Close()
}

// List reads the names of all tables, of all programs. A kernel without nf_tables has none. Asking
// lets the kernel load the module by itself.
func (h *Handle) List(ctx context.Context) (map[Key]struct{}, error) {
	tables, err := call(ctx, h, exchange.list)
	if err != nil {
		return nil, fmt.Errorf("list nftables tables: %w", err)
	}
	if tables == nil {
		tables = map[Key]struct{}{}
	}
	return tables, nil
}

// Generation is a number that the kernel increases with every transaction on tables of any family,
// by any program; it wraps around. While it stays the same, tables that were read are still
// current. A kernel without nf_tables has 0.
func (h *Handle) Generation(ctx context.Context) (uint32, error) {
	generation, err := call(ctx, h, exchange.generation)
	if err != nil {
		return 0, fmt.Errorf("read generation of nftables: %w", err)
	}
	return generation, nil
}

// Leads reports whether a rule of a chain has a verdict that leads to another chain: a jump, or a
// goto. A table or chain that is not there leads nowhere.
func (h *Handle) Leads(ctx context.Context, table Key, chain, target string) (bool, error) {
	if err := table.Check(); err != nil {
		return false, err
	}
	leads, err := call(ctx, h, func(x exchange) (bool, error) { return x.leads(table, chain, target) })
	if err != nil {
		return false, fmt.Errorf("read rules of chain %s of table %s: %w", chain, table, err)
	}
	return leads, nil
}

// filterShare is how many times as long as another call Filters may take, for it makes
// several dumps for each table.
const filterShare = 6

// Filters reads the rules for packets to, through and from this machine in base chains of IP tables
// of all programs, including tables of iptables-nft. All is of one moment. A kernel without
// nf_tables has none.
func (h *Handle) Filters(ctx context.Context) ([]Filter, error) {
	out, err := callWithin(ctx, h, filterShare, exchange.filters)
	if err != nil {
		return nil, fmt.Errorf("read filters of nftables: %w", err)
	}
	return out, nil
}

// Delete removes tables with all that is in them, in one transaction: packets see all of them or
// none. The errors are aligned with the keys; a nil slice means that none of the tables exists any
// more. If one cannot be deleted none is, and the errors of the others name it. After a time-out
// the state is unknown; List reads it.
func (h *Handle) Delete(ctx context.Context, keys []Key) []error {
	if len(keys) == 0 {
		return nil
	}
	if errs := CheckAll(keys); errs != nil {
		return errs
	}
	faults, err := call(ctx, h, func(x exchange) (map[Key]error, error) { return x.remove(unique(keys)) })
	if len(faults) == 0 && err == nil {
		return nil
	}
	return Together(keys, faults, err)
}

// findMatch is FindMatch without the checks. A kernel without nfnetlink has no nft_compat.
func (h *Handle) findMatch(ctx context.Context, family, name string) error {
	_, err := nfnetlink.Do(ctx, h.caller, 1, func(s *nfnetlink.Session) (struct{}, error) {
		return struct{}{}, exchange{s}.findMatch(family, name)
	})
	if errors.Is(err, unix.EPROTONOSUPPORT) {
		err = fmt.Errorf("%w: %w", ErrUnsupported, err)
	}
	return err
}

// call runs one use of a socket and returns at the deadline at the latest.
func call[T any](ctx context.Context, h *Handle, use func(exchange) (T, error)) (T, error) {
	return callWithin(ctx, h, 1, use)
}

// callWithin is call with so many times its deadline. A kernel without nfnetlink has no tables.
func callWithin[T any](ctx context.Context, h *Handle, share int, use func(exchange) (T, error)) (T, error) {
	out, err := nfnetlink.Do(ctx, h.caller, share, func(s *nfnetlink.Session) (T, error) { return use(exchange{s}) })
	if errors.Is(err, unix.EPROTONOSUPPORT) {
		var none T
		return none, nil
	}
	return out, err
}
