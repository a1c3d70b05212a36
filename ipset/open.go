package ipset

import (
	"context"
	"errors"
)

// Open returns a handle that the kernel has answered. Unlike New it fails with ErrUnsupported
// when the kernel has no ipset.
func Open(ctx context.Context, o Options) (*Handle, error) {
	h, err := New(o)
	if err != nil {
		return nil, err
	}
	if _, err := h.Probe(ctx); err != nil {
		return nil, errors.Join(err, h.Close())
	}
	return h, nil
}
