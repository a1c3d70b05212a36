//go:build !linux

package nftables

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

// List fails with ErrUnsupported.
func (h *Handle) List(context.Context) (map[Key]struct{}, error) { return nil, errPlatform }

// Leads is the Linux call of that name.
func (h *Handle) Leads(context.Context, Key, string, string) (bool, error) { return false, errPlatform }

// Filters fails with ErrUnsupported.
func (h *Handle) Filters(context.Context) ([]Filter, error) { return nil, errPlatform }

// Generation fails with ErrUnsupported.
func (h *Handle) Generation(context.Context) (uint32, error) { return 0, errPlatform }

func (h *Handle) findMatch(context.Context, string, string) error { return errPlatform }

// Watch fails with ErrUnsupported.
func (h *Handle) Watch(context.Context, func([]Writer)) error { return errPlatform }

// Delete fails every key with ErrUnsupported.
func (h *Handle) Delete(_ context.Context, keys []Key) []error {
	if len(keys) == 0 {
		return nil
	}
	return Together(keys, nil, errPlatform)
}
