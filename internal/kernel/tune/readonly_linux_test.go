package tune_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/tune"
)

const inNamespace = "TUNE_TEST_IN_MOUNT_NAMESPACE"

// ownMounts runs the calling test again, as a process with mounts of its own, and
// reports whether this is that process. A thread alone would not do: the code
// under test uses several.
func ownMounts(t *testing.T) bool {
	t.Helper()
	if os.Getenv(inNamespace) != "" {
		return true
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), inNamespace+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS}
	out, err := cmd.CombinedOutput()
	if errors.Is(err, unix.EPERM) {
		t.Skipf("no mount namespace of its own: %v", err)
	}
	if err != nil {
		t.Errorf("in a mount namespace: %v\n%s", err, out)
	}
	return false
}

// readOnly mounts the node's /proc/sys read-only, as containers have it.
func (n node) readOnly(t *testing.T) {
	t.Helper()
	sys := n.path("proc/sys")
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

func TestReadOnlySysctls(t *testing.T) {
	if !ownMounts(t) {
		return
	}
	n := newNode(t)
	n.sysctl(t, key, "0")
	n.sysctl(t, "net.ipv4.vs.conntrack", "1")
	n.readOnly(t)
	results := n.tuner(t).Apply(t.Context(), []tune.Sysctl{
		{Key: "net.ipv4.vs.conntrack", Value: "1", Policy: tune.Required},
		{Key: "net.ipv4.vs.missing", Value: "1", Policy: tune.Required},
		{Key: key, Value: "1", Policy: tune.Required},
	})
	var outcomes []string
	for _, r := range results {
		outcomes = append(outcomes, r.Outcome.String())
	}
	if got := strings.Join(outcomes, " "); got != "right missing refused" {
		t.Fatalf("outcomes %q, want %q", got, "right missing refused")
	}
	err := tune.Failure(results, tune.Required)
	if !errors.Is(err, unix.EROFS) || !strings.Contains(err.Error(), `set sysctl net.ipv4.ip_forward from "0" to "1"`) {
		t.Errorf("Failure = %v, want the key, both values and the reason", err)
	}
	verdicts := tune.RunChecks(t.Context(), n.tuner(t).Checks(tune.CheckOptions{}))
	if v := verdictOf(t, verdicts, "sysctls writable"); v.State != tune.Warn || v.Fix == "" {
		t.Errorf("verdict %+v, want a warning with a fix", v)
	}
}

func TestRefusedRestoreKeepsTheJournal(t *testing.T) {
	if !ownMounts(t) {
		return
	}
	n := newNode(t)
	n.sysctl(t, key, "0")
	n.tuner(t).Apply(t.Context(), forward(tune.Required))
	n.readOnly(t)
	got := n.tuner(t).Restore(t.Context())
	if len(got) != 1 || !errors.Is(got[0].Err, unix.EROFS) {
		t.Fatalf("Restore = %v, want refused as read-only", texts(got))
	}
	wantFiles(t, n.run, "sysctls.json")
}

// A pipe without a writer stands for a key whose reader waits for a kernel lock.
func TestKeyThatNeverAnswers(t *testing.T) {
	n := newNode(t)
	n.sysctl(t, "net.ipv4.vs.conntrack", "0")
	pipe := n.path("proc/sys/net/ipv4/ip_forward")
	if err := unix.Mkfifo(pipe, 0o644); err != nil {
		t.Fatalf("make a pipe: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	results := n.tuner(t).Apply(ctx, forward(tune.Required))
	if !errors.Is(results[0].Err, context.DeadlineExceeded) || results[0].Outcome != tune.Refused {
		t.Errorf("result %s, want refused at the deadline", results[0])
	}
	// Let the reader that was left behind go.
	w, err := os.OpenFile(pipe, os.O_WRONLY, 0)
	if err != nil {
		t.Fatalf("open the pipe: %v", err)
	}
	_ = w.Close()
}
