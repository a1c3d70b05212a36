package ipset_test

import (
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kube-ipvs/kube-ipvs/ipset"
	"github.com/kube-ipvs/kube-ipvs/ipset/ipsettest"
)

// enterNetns moves the test into a network namespace of its own. The goroutine
// stays locked, so its thread, and with it the namespace, ends with the test.
func enterNetns(t testing.TB) {
	t.Helper()
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Skipf("no network namespace of our own: %v", err)
	}
}

// openKernel returns a handle on a fresh network namespace.
func openKernel(t testing.TB) *ipset.Handle {
	t.Helper()
	enterNetns(t)
	h, err := ipset.New(ipset.Options{})
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

// tool runs the ipset command in the namespace of the test, or skips.
func tool(t testing.TB, stdin string, args ...string) string {
	t.Helper()
	if _, err := exec.LookPath("ipset"); err != nil {
		t.Skipf("the ipset command is not installed: %v", err)
	}
	cmd := exec.CommandContext(t.Context(), "ipset", args...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("ipset %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

func TestKernelKeepsContract(t *testing.T) {
	ipsettest.Contract(t, func(t *testing.T) ipsettest.Subject {
		return ipsettest.Subject{
			Client: openKernel(t),
			Refer: func(name string) { // a set of sets refers to its members
				tool(t, "", "create", "refers", "list:set")
				tool(t, "", "add", "refers", name)
			},
		}
	})
}
