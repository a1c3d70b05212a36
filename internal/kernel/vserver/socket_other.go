//go:build !linux

package vserver

import (
	"context"
	"fmt"

	"go.uber.org/zap"
)

// New fails with ErrUnsupported: only Linux has IPVS.
func New(*zap.Logger, Options) (*Handle, error) {
	return nil, fmt.Errorf("open ipvs on this operating system: %w", ErrUnsupported)
}

// ProbeReuse fails with ErrUnsupported: only Linux has IPVS.
func ProbeReuse(context.Context, *zap.Logger) (Reuse, error) {
	return Reuse{}, fmt.Errorf("probe the reuse of source ports on this operating system: %w", ErrUnsupported)
}
