//go:build !linux

package conntrack

import (
	"fmt"
	"runtime"

	"go.uber.org/zap"
)

// New fails with ErrUnsupported: only Linux has such a table.
func New(*zap.Logger, Options) (*Handle, error) {
	return nil, fmt.Errorf("open connection tracking on %s: %w", runtime.GOOS, ErrUnsupported)
}
