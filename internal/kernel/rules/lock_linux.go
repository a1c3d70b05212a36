package rules

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// lockFile is the file that legacy's tools lock, and lockVariable names another one
	// (iptables/xshared.h, XT_LOCK_NAME and XT_LOCKFILE).
	lockFile     = "/run/xtables.lock"
	lockVariable = "XTABLES_LOCKFILE"
	// lockRetry is the time in which to try again what a held lock kept from being done.
	lockRetry = time.Second
)

// lockWatch is set when a tool waited for the lock of legacy in vain. A process that holds it
// for so long may be stuck: until the lock is free, no call waits again, and no process is started.
// While all goes well nothing is asked.
type lockWatch struct{ stuck atomic.Bool }

// held reports whether the lock that timed out is still held. It is tried, and given back at once:
// one who comes in between and does not wait finds it held, as with any tool.
func (w *lockWatch) held() bool {
	if !w.stuck.Load() {
		return false
	}
	fd, err := unix.Open(cmp.Or(os.Getenv(lockVariable), lockFile), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false // the tool tells why
	}
	defer unix.Close(fd)
	return errors.Is(unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB), unix.EWOULDBLOCK)
}

// lockError is a tool's failure for want of the lock.
type lockError struct{ *toolError }

// Unwrap implements errors.As and errors.Is.
func (e lockError) Unwrap() []error { return []error{e.toolError} }

// RetryWithin asks for an early retry after any number of failures: a test for the lock needs no
// process, and nothing notifies of its release.
func (e lockError) RetryWithin() time.Duration { return lockRetry }

// free fails where a tool of legacy would wait in vain.
func (h *Handle) free(tool string) error {
	if h.backend != Legacy || !h.lock.held() {
		return nil
	}
	return lockError{&toolError{
		tool: tool, status: lockStatus, kind: ErrBusy,
		text: fmt.Sprintf("not started: another app is still %s, which was waited for %s", lockMessage, h.opts.LockWait),
	}}
}

// runLocked is run for tools that take the lock.
func (h *Handle) runLocked(ctx context.Context, timeout time.Duration, stdin io.Reader, tool string, args ...string) ([]byte, error) {
	out, err := h.run(ctx, timeout, stdin, tool, args...)
	var e *toolError
	if stuck := errors.As(err, &e) && strings.Contains(e.text, lockMessage); h.backend == Legacy {
		h.lock.stuck.Store(stuck)
		if stuck {
			return nil, lockError{e}
		}
	}
	return out, err
}
