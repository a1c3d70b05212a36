//go:build !linux

package ipset

import (
	"context"
	"fmt"
	"runtime"
	"slices"
)

// Handle exists on Linux only; here New always fails with ErrUnsupported.
type Handle struct{}

// errOS is the answer of every call.
var errOS = fmt.Errorf("ipset on %s: %w", runtime.GOOS, ErrUnsupported)

// New fails with ErrUnsupported.
func New(Options) (*Handle, error) { return nil, errOS }

// Close does nothing.
func (h *Handle) Close() error { return nil }

// Probe fails with ErrUnsupported.
func (h *Handle) Probe(context.Context) (Version, error) { return Version{}, errOS }

// Revision fails with ErrUnsupported.
func (h *Handle) Revision(context.Context, Type, Family) (uint8, error) { return 0, errOS }

// ListSets fails with ErrUnsupported.
func (h *Handle) ListSets(context.Context) ([]Set, error) { return nil, errOS }

// Stat fails with ErrUnsupported.
func (h *Handle) Stat(context.Context) ([]Info, error) { return nil, errOS }

// List fails with ErrUnsupported.
func (h *Handle) List(context.Context, string) (Set, []Entry, error) { return Set{}, nil, errOS }

// Create fails with ErrUnsupported.
func (h *Handle) Create(context.Context, Set) error { return errOS }

// CreateAll fails every set with ErrUnsupported.
func (h *Handle) CreateAll(_ context.Context, sets ...Set) []error {
	return slices.Repeat([]error{errOS}, len(sets))
}

// Destroy fails with ErrUnsupported.
func (h *Handle) Destroy(context.Context, string) error { return errOS }

// Flush fails with ErrUnsupported.
func (h *Handle) Flush(context.Context, string) error { return errOS }

// Swap fails with ErrUnsupported.
func (h *Handle) Swap(context.Context, string, string) error { return errOS }

// Rename fails with ErrUnsupported.
func (h *Handle) Rename(context.Context, string, string) error { return errOS }

// Add fails with ErrUnsupported.
func (h *Handle) Add(context.Context, string, ...Entry) error { return errOS }

// Delete fails with ErrUnsupported.
func (h *Handle) Delete(context.Context, string, ...Entry) error { return errOS }

// Test fails with ErrUnsupported.
func (h *Handle) Test(context.Context, string, Entry) (bool, error) { return false, errOS }

// Write fails every change with ErrUnsupported.
func (h *Handle) Write(_ context.Context, _ Set, changes []Change) []error {
	errs := make([]error, len(changes))
	for i := range errs {
		errs[i] = errOS
	}
	return errs
}

// WriteAll fails every change with ErrUnsupported.
func (h *Handle) WriteAll(ctx context.Context, batches ...Batch) [][]error {
	out := make([][]error, len(batches))
	for i, b := range batches {
		out[i] = h.Write(ctx, b.Set, b.Changes)
	}
	return out
}

// Replace fails with ErrUnsupported.
func (h *Handle) Replace(context.Context, Set, []Entry) error { return errOS }
