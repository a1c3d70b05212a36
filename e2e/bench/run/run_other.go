//go:build !linux

package run

import (
	"context"
	"errors"
)

// Run needs Linux.
func Run(context.Context, Options) error { return errors.New("the benchmark needs Linux") }
