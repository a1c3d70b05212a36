//go:build !linux

package link

import (
	"context"
	"fmt"
	"net/netip"
	"runtime"

	"go.uber.org/zap"
)

// Handle exists on Linux only; elsewhere every call fails.
type Handle struct{}

var errPlatform = fmt.Errorf("link addresses on %s: %w", runtime.GOOS, ErrUnsupported)

// New fails with ErrUnsupported.
func New(*zap.Logger, Options) (*Handle, error) { return nil, errPlatform }

// There is the Linux call of that name.
func (h *Handle) There(context.Context) (bool, error) { return false, errPlatform }

// Ensure fails with ErrUnsupported.
func (h *Handle) Ensure(context.Context) (bool, error) { return false, errPlatform }

// List fails with ErrUnsupported.
func (h *Handle) List(context.Context) (map[netip.Addr]struct{}, error) { return nil, errPlatform }

// Local fails with ErrUnsupported.
func (h *Handle) Local(context.Context) (map[netip.Addr]string, error) { return nil, errPlatform }

// Gateways fails with ErrUnsupported.
func (h *Handle) Gateways(context.Context) ([]netip.Addr, error) { return nil, errPlatform }

// Write fails every row with ErrUnsupported.
func (h *Handle) Write(_ context.Context, changes []Change) []error {
	errs := make([]error, len(changes))
	for i := range errs {
		errs[i] = errPlatform
	}
	return errs
}

// ListRoutes fails with ErrUnsupported.
func (h *Handle) ListRoutes(context.Context) (map[netip.Prefix]struct{}, error) {
	return nil, errPlatform
}

// WriteRoutes fails every row with ErrUnsupported.
func (h *Handle) WriteRoutes(_ context.Context, changes []RouteChange) []error {
	errs := make([]error, len(changes))
	for i := range errs {
		errs[i] = errPlatform
	}
	return errs
}

// ListDetached fails with ErrUnsupported.
func (h *Handle) ListDetached(context.Context) (map[netip.Addr]bool, error) {
	return nil, errPlatform
}

// WriteDetached fails every row with ErrUnsupported.
func (h *Handle) WriteDetached(ctx context.Context, changes []Change) []error {
	return h.Write(ctx, changes)
}

// ListAnnounced fails with ErrUnsupported.
func (h *Handle) ListAnnounced(context.Context, uint32) (map[Announcement]struct{}, error) {
	return nil, errPlatform
}

// WriteAnnounced fails every row with ErrUnsupported.
func (h *Handle) WriteAnnounced(_ context.Context, changes []AnnounceChange) []error {
	errs := make([]error, len(changes))
	for i := range errs {
		errs[i] = errPlatform
	}
	return errs
}

// RulesTo fails with ErrUnsupported.
func (h *Handle) RulesTo(context.Context, uint32) ([]uint32, error) { return nil, errPlatform }

// Watch fails with ErrUnsupported.
func (h *Handle) Watch(context.Context, func(Event)) error { return errPlatform }

// Remove fails with ErrUnsupported.
func (h *Handle) Remove(context.Context) error { return errPlatform }

// Counters returns zeros.
func (h *Handle) Counters() Counters { return Counters{} }

// Close does nothing.
func (h *Handle) Close() {}
