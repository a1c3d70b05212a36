//go:build !linux

package vserver

import (
	"fmt"

	"go.uber.org/zap"
)

// New fails with ErrUnsupported: only Linux has IPVS.
func New(*zap.Logger, Options) (*Handle, error) {
	return nil, fmt.Errorf("open ipvs on this operating system: %w", ErrUnsupported)
}
