//go:build !linux

package host

import "errors"

func checksumOffload(string) (bool, error) { return false, errors.ErrUnsupported }
