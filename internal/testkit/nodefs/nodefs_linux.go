package nodefs

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

const inNamespace = "NODEFS_IN_NAMESPACE"

// OwnMounts runs the calling test again, as a process with mounts of its own, and
// reports whether this is that process.
func OwnMounts(t *testing.T) bool {
	t.Helper()
	return Own(t, unix.CLONE_NEWNS)
}

// Own is OwnMounts for any kind of namespace. A thread alone would not do: the
// code under test uses several.
func Own(t *testing.T, namespaces uintptr) bool {
	t.Helper()
	if os.Getenv(inNamespace) != "" {
		return true
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), inNamespace+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: namespaces}
	out, err := cmd.CombinedOutput()
	if errors.Is(err, unix.EPERM) {
		t.Skipf("no namespace of its own: %v", err)
	}
	if err != nil {
		t.Errorf("in a namespace of its own: %v\n%s", err, out)
	}
	if _, why, skipped := strings.Cut(string(out), "--- SKIP"); skipped {
		t.Skipf("in a namespace of its own: %s", why)
	}
	return false
}

// ReadOnly mounts the node's /proc/sys read-only, as containers have it.
func (n Node) ReadOnly(t *testing.T) {
	t.Helper()
	n.ReadOnlyTree(t, "proc/sys")
}

// ReadOnlyTree mounts a directory of the node read-only.
func (n Node) ReadOnlyTree(t *testing.T, name string) {
	t.Helper()
	sys := n.Path(name)
	for _, m := range []struct {
		source string
		flags  uintptr
	}{{sys, unix.MS_BIND}, {"", unix.MS_BIND | unix.MS_REMOUNT | unix.MS_RDONLY}} {
		if err := unix.Mount(m.source, sys, "", m.flags, ""); err != nil {
			t.Fatalf("mount %s read-only: %v", sys, err)
		}
	}
	t.Cleanup(func() { _ = unix.Unmount(sys, unix.MNT_DETACH) })
}
