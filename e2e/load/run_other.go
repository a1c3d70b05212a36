//go:build !linux

package load

import (
	"context"
	"errors"
)

// Run is load that goes on until it is stopped; there is none on this OS.
type Run struct{}

var errUnsupported = errors.New("load: unsupported on this OS")

// Start fails.
func Start(_ context.Context, p Profile) (*Run, error) {
	return nil, errors.Join(p.validate(), errUnsupported)
}

// Stop has nothing to tell.
func (*Run) Stop() (Report, error) { return Report{}, errUnsupported }

// Report has nothing to tell.
func (*Run) Report() Report { return Report{}.clone() }
