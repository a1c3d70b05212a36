//go:build !linux

package tune

import "errors"

// SmallPages is for Linux only.
func SmallPages() error { return errors.ErrUnsupported }
