//go:build !linux

package plane

import (
	"errors"
	"time"
)

// Usage is what the process of the API server has used.
type Usage struct {
	CPU time.Duration
	RSS int64 // bytes
}

// Usage is known on Linux alone.
func (*Plane) Usage() (Usage, error) { return Usage{}, errors.ErrUnsupported }
