package rules

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"

	"go.uber.org/zap"
)

// Beside opens the backends other than used, in the families that the kernel has tables
// of: rules there are seen by every packet, too. With used "" these are both. It loads no
// module: tables that are not loaded hold nothing. A backend whose tools are missing is
// left out, with a log line.
func Beside(ctx context.Context, log *zap.Logger, opts Options, used Backend) ([]*Handle, error) {
	opts = opts.Defaults()
	if err := opts.Validate(); err != nil {
		return nil, fmt.Errorf("rules options: %w", err)
	}
	var out []*Handle
	for _, b := range []Backend{NFT, Legacy} {
		if b == used {
			continue
		}
		h := &Handle{log: log.Named("rules"), opts: opts, backend: b, per: map[Family]*familyTools{}}
		for _, f := range opts.Families {
			if err := h.openInUse(ctx, f); err != nil {
				return nil, fmt.Errorf("look at backend %s: %w", b, err)
			}
		}
		if len(h.families) > 0 {
			out = append(out, h)
		}
	}
	return out, nil
}

// openInUse finds the tools of a family whose tables the kernel has.
func (h *Handle) openInUse(ctx context.Context, f Family) error {
	switch in, err := h.inUse(ctx, f); {
	case err != nil:
		return err
	case !in:
		return nil
	}
	t, err := findTools(ctx, h.opts.Timeout, f, h.backend)
	switch {
	case errors.Is(err, ErrUnsupported):
		h.log.Info("cannot read the rules of the other iptables backend: its tools are missing", zap.String("backend", string(h.backend)), zap.String("family", f.Table()))
	case err != nil:
		return err
	default:
		h.per[f] = &familyTools{tools: t}
		h.families = append(h.families, f)
	}
	return nil
}

// inUse reports whether the kernel may have rules of the backend: legacy lists the tables that
// are loaded, and a kernel without nf_tables has generation 0.
func (h *Handle) inUse(ctx context.Context, f Family) (bool, error) {
	if h.backend == Legacy {
		loaded, err := tablesLoaded(h.opts.Root, f)
		return len(loaded) > 0, err
	}
	if h.opts.Generation == nil {
		return true, nil
	}
	g, err := h.opts.Generation(ctx)
	return g != 0, err
}

// Sign is another number after each change of the rules by any process, as far as that can
// be seen without one: see [Handle.Stamp] for legacy.
func (h *Handle) Sign(ctx context.Context) (uint64, error) {
	if h.backend == NFT {
		if h.opts.Generation == nil {
			return 0, fmt.Errorf("generation of nftables: %w", ErrUnsupported)
		}
		return h.opts.Generation(ctx)
	}
	sum := fnv.New64a()
	for _, f := range h.families {
		loaded, err := tablesLoaded(h.opts.Root, f)
		if err != nil {
			return 0, err
		}
		n, err := h.Stamp(f, loaded...)
		if err != nil && !errors.Is(err, ErrUnsupported) { // none is loaded
			return 0, err
		}
		fmt.Fprintln(sum, f, loaded, n)
	}
	return sum.Sum64(), nil
}

// Purge removes our chains and the jumps into them, and looks again: a rule that is left is an
// error. It returns how many of both were there.
func (h *Handle) Purge(ctx context.Context) (found int, err error) {
	chains, jumps, err := h.List(ctx)
	if found = len(chains) + len(jumps); err != nil || found == 0 {
		return found, err
	}
	failed := h.purge(ctx, chains, jumps)
	chains, jumps, err = h.List(ctx)
	if left := len(chains) + len(jumps); err == nil && left > 0 {
		err = fmt.Errorf("%d chains and jumps of ours stay in backend %s", left, h.backend)
	}
	if err != nil {
		err = errors.Join(append([]error{err}, failed...)...)
	}
	return found, err
}

// purge takes the jumps first: no packet meets a chain that is half empty.
func (h *Handle) purge(ctx context.Context, chains map[ChainKey]Chain, jumps map[JumpKey]Jump) []error {
	var away []JumpChange
	for _, k := range slices.SortedFunc(maps.Keys(jumps), JumpKey.Compare) {
		away = append(away, JumpChange{Op: Delete, Key: k})
	}
	if errs := h.WriteJumps(ctx, away); errs != nil {
		return errs
	}
	var drop []ChainChange
	for _, k := range slices.SortedFunc(maps.Keys(chains), ChainKey.Compare) {
		drop = append(drop, ChainChange{Op: Delete, Key: k})
	}
	return h.WriteChains(ctx, drop)
}
