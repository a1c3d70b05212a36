//go:build !linux

package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"
)

// flock always fails: there is nothing to guard where there is no IPVS.
func flock(*os.File) error {
	return fmt.Errorf("only Linux has IPVS, this is %s: %w", runtime.GOOS, errors.ErrUnsupported)
}
