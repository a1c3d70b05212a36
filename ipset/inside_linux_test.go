package ipset

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// OpenInside returns a handle on a network namespace of the test's own, or
// skips. The goroutine stays locked, so its thread, and with it the namespace,
// ends with the test.
func OpenInside(t testing.TB, o Options) *Handle {
	t.Helper()
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Skipf("no network namespace of our own: %v", err)
	}
	h, err := New(o)
	if err != nil {
		t.Skipf("no netfilter netlink: %v", err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	if _, err := h.Probe(t.Context()); err != nil {
		t.Skipf("no ipset in this kernel: %v", err)
	}
	return h
}
