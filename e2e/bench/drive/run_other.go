//go:build !linux

package drive

import (
	"context"
	"errors"
)

// Run needs Linux: what it measures is there alone.
func Run(context.Context, Options) error { return errors.New("the benchmark needs Linux") }
