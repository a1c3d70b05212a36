//go:build !linux

package tune

import "errors"

func checksumOffload(string) (bool, error) { return false, errors.ErrUnsupported }
