package rules

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/coreos/go-iptables/iptables"
	"go.uber.org/zap"
)

// Handle reads and writes the iptables state of the network namespace of
// the thread that calls it. Its writes belong to one goroutine at a time.
type Handle struct {
	log      *zap.Logger
	opts     Options
	backend  Backend
	families []Family
	per      map[Family]*familyTools

	saves, restores, jumps, bytes, rows atomic.Uint64
	listed                              atomic.Uint64 // bytes of the last listing
	lock                                lockWatch
}

// familyTools is what a Handle needs for one family.
type familyTools struct {
	tools
	randomFully bool
	failures    atomic.Uint64 // number of failures of iptables-restore
}

// New chooses the backend, leaves out families the node lacks and fails with
// ErrUnsupported if none remains.
func New(log *zap.Logger, opts Options) (*Handle, error) {
	opts = opts.Defaults()
	if err := opts.Validate(); err != nil {
		return nil, fmt.Errorf("rules options: %w", err)
	}
	log = log.Named("rules")
	ctx := context.Background() // each process is bounded by opts.Timeout
	b, seen, err := pickBackend(ctx, log, opts)
	if err != nil {
		return nil, err
	}
	found, err := usable(ctx, log, opts, b, seen)
	if err != nil {
		return nil, err
	}
	h := &Handle{log: log, opts: opts, backend: b, per: map[Family]*familyTools{}}
	asked := map[string]bool{} // by program: both families may be one
	for f, t := range found {
		program := t.program()
		randomFully, known := asked[program]
		if !known {
			ipt, err := openIPTables(f, t, opts.LockWait)
			if err != nil {
				return nil, err
			}
			randomFully = ipt.HasRandomFully()
			asked[program] = randomFully
		}
		h.per[f] = &familyTools{tools: t, randomFully: randomFully}
		h.families = append(h.families, f)
	}
	slices.Sort(h.families)
	return h, nil
}

// openIPTables always sets a timeout: without one go-iptables passes a bare
// --wait, which waits for ever behind a stuck lock holder.
func openIPTables(f Family, t tools, wait time.Duration) (*iptables.IPTables, error) {
	proto := iptables.ProtocolIPv4
	if f == IPv6 {
		proto = iptables.ProtocolIPv6
	}
	ipt, err := iptables.New(iptables.IPFamily(proto), iptables.Path(t.command), iptables.Timeout(int(wait/time.Second)))
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", t.command, err)
	}
	return ipt, nil
}

func waitArg(o Options) string { return "--wait=" + strconv.Itoa(int(o.LockWait/time.Second)) }

// Backend is the one in use.
func (h *Handle) Backend() Backend { return h.backend }

// Families are those in use, IPv4 first.
func (h *Handle) Families() []Family { return slices.Clone(h.families) }

// RandomFully reports whether the family's iptables knows MASQUERADE --random-fully (since 1.6.2).
func (h *Handle) RandomFully(f Family) bool {
	t := h.per[f]
	return t != nil && t.randomFully
}

// Counters may be called from any goroutine.
func (h *Handle) Counters() Counters {
	return Counters{
		Save: h.saves.Load(), Restore: h.restores.Load(), Jump: h.jumps.Load(),
		Bytes: h.bytes.Load(), Rows: h.rows.Load(),
	}
}

// RestoreFailures counts failed runs of iptables-restore, as kube-proxy's metric of that name does.
// A batch with one bad chain counts once more for each part of it that is refused on the way to
// that chain. It may be called from any goroutine.
func (h *Handle) RestoreFailures(f Family) uint64 {
	if t := h.per[f]; t != nil {
		return t.failures.Load()
	}
	return 0
}

// List reads our chains and the jumps into them, in canonical form, with one
// iptables-save per family. On an error nothing is returned: half a listing
// must not be taken for deletions. It may be called from another goroutine beside
// a write: it sees each table as it is between two processes of that, but not all
// tables of one moment.
func (h *Handle) List(ctx context.Context) (map[ChainKey]Chain, map[JumpKey]Jump, error) {
	l := NewListing(h.opts.Owned)
	listed := 0
	for _, f := range h.families {
		out, tables, err := h.save(ctx, f)
		if err != nil {
			return nil, nil, fmt.Errorf("list chains of family %s: %w", f, err)
		}
		listed += len(out)
		l.Add(f, tables)
	}
	h.listed.Store(uint64(listed))
	return l.Chains, l.Jumps, nil
}

// save lists all tables of a family.
func (h *Handle) save(ctx context.Context, f Family) (out []byte, tables []SaveTable, err error) {
	h.saves.Add(1)
	if out, err = h.run(ctx, h.opts.listTimeout(), nil, h.per[f].save); err != nil {
		return nil, nil, err
	}
	tables, err = ParseSave(bytes.NewReader(out))
	return out, tables, err
}

// Generation is a number that changes with each transaction of nftables in this network namespace,
// by any program (Options.Generation); it is 0 if unknown, and with legacy. It may be called from
// any goroutine.
func (h *Handle) Generation(ctx context.Context) uint64 {
	if h.opts.Generation == nil || h.backend != NFT {
		return 0
	}
	g, err := h.opts.Generation(ctx)
	if err != nil {
		return 0
	}
	return g
}
