//go:build !linux

package nft

import (
	"context"
	"fmt"
	"runtime"

	"go.uber.org/zap"
)

// Handle exists on Linux only; elsewhere every call fails.
type Handle struct{}

var errPlatform = fmt.Errorf("nftables on %s: %w", runtime.GOOS, ErrUnsupported)

// New fails with ErrUnsupported.
func New(*zap.Logger, Options) (*Handle, error) { return nil, errPlatform }

// Close does nothing.
func (h *Handle) Close() {}

// Wrote is false.
func (h *Handle) Wrote(uint32) bool { return false }

// Read fails with ErrUnsupported.
func (h *Handle) Read(context.Context) (Ruleset, error) { return Ruleset{}, errPlatform }

// Generation fails with ErrUnsupported.
func (h *Handle) Generation(context.Context) (uint32, error) { return 0, errPlatform }

// Elements fails with ErrUnsupported.
func (h *Handle) Elements(context.Context, Key) (Set, []Element, error) {
	return Set{}, nil, errPlatform
}

// Apply fails every row with ErrUnsupported.
func (h *Handle) Apply(_ context.Context, p Pass) Outcome { return Refuse(p, errPlatform) }

// Check fails every row with ErrUnsupported.
func (h *Handle) Check(_ context.Context, p Pass) Outcome { return Refuse(p, errPlatform) }
