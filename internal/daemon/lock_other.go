//go:build !linux

package daemon

import (
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
)

// errNotLinux fails all that guards or writes: there is no IPVS to write to.
var errNotLinux = fmt.Errorf("only Linux has IPVS, this is %s: %w", runtime.GOOS, errors.ErrUnsupported)

// flock always fails.
func flock(*os.File) error { return errNotLinux }

// taken is never true, so that flock has the word.
func taken(error) bool { return false }

// peer always fails.
func peer(*net.UnixConn) (pid, uid int, err error) { return 0, 0, errNotLinux }

// mayWrite always fails.
func mayWrite() error { return errNotLinux }
