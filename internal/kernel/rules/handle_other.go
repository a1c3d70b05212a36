//go:build !linux

package rules

import (
	"context"
	"fmt"
	"runtime"

	"go.uber.org/zap"
)

// Handle exists on Linux only; elsewhere New fails.
type Handle struct{}

var errOS = fmt.Errorf("iptables on %s: %w", runtime.GOOS, ErrUnsupported)

// New always fails with ErrUnsupported.
func New(*zap.Logger, Options) (*Handle, error) { return nil, errOS }

// Beside fails with ErrUnsupported.
func Beside(context.Context, *zap.Logger, Options, Backend) ([]*Handle, error) { return nil, errOS }

// Sign fails with ErrUnsupported.
func (h *Handle) Sign(context.Context) (uint64, error) { return 0, errOS }

// Purge fails with ErrUnsupported.
func (h *Handle) Purge(context.Context) (found int, err error) { return 0, errOS }

// Backend is empty.
func (h *Handle) Backend() Backend { return "" }

// UsableFamilies is empty.
func UsableFamilies() []Family { return nil }

// Families is empty.
func (h *Handle) Families() []Family { return nil }

// RandomFully is false.
func (h *Handle) RandomFully(Family) bool { return false }

// List fails with ErrUnsupported.
func (h *Handle) List(context.Context) (map[ChainKey]Chain, map[JumpKey]Jump, error) {
	return nil, nil, errOS
}

// Write fails every row with ErrUnsupported.
func (h *Handle) Write(_ context.Context, chains []ChainChange, rules []RuleChange) (chainErrs, ruleErrs []error) {
	return unsupported(len(chains)), unsupported(len(rules))
}

// WriteChains fails every row with ErrUnsupported.
func (h *Handle) WriteChains(_ context.Context, changes []ChainChange) []error {
	return unsupported(len(changes))
}

// WriteJumps fails every row with ErrUnsupported.
func (h *Handle) WriteJumps(_ context.Context, changes []JumpChange) []error {
	return unsupported(len(changes))
}

// JumpsThere fails with ErrUnsupported.
func (h *Handle) JumpsThere(context.Context, []JumpKey) ([]JumpKey, error) { return nil, errOS }

// Stamp fails with ErrUnsupported.
func (h *Handle) Stamp(Family, ...string) (uint64, error) { return 0, errOS }

// FindMatch fails with ErrUnsupported.
func (h *Handle) FindMatch(context.Context, string) error { return errOS }

// Generation is not known.
func (h *Handle) Generation(context.Context) uint64 { return 0 }

// Counters is zero.
func (h *Handle) Counters() Counters { return Counters{} }

// RestoreFailures is zero.
func (h *Handle) RestoreFailures(Family) uint64 { return 0 }

func unsupported(n int) []error {
	errs := make([]error, n)
	for i := range errs {
		errs[i] = errOS
	}
	return errs
}

// Counted fails with ErrUnsupported.
func (h *Handle) Counted(context.Context, []string, func(ChainKey) bool) ([]Counted, error) {
	return nil, errOS
}
