package tune_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/tune"
)

const inNamespace = "TUNE_TEST_IN_NAMESPACE"

// ownMounts runs the calling test again, as a process with mounts of its own, and
// reports whether this is that process.
func ownMounts(t *testing.T) bool {
	t.Helper()
	return own(t, unix.CLONE_NEWNS)
}

// own is ownMounts for any kind of namespace. A thread alone would not do: the
// code under test uses several.
func own(t *testing.T, namespaces uintptr) bool {
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

// readOnly mounts the node's /proc/sys read-only, as containers have it.
func (n node) readOnly(t *testing.T) {
	t.Helper()
	n.readOnlyTree(t, "proc/sys")
}

func (n node) readOnlyTree(t *testing.T, name string) {
	t.Helper()
	sys := n.path(name)
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
	err = tune.Demand(results)
	if !errors.Is(err, unix.EROFS) || !strings.Contains(err.Error(), "remedy: on the host: sysctl -w net.ipv4.ip_forward=1; or mount") {
		t.Errorf("Demand = %v, want the reason, and the remedy for the key that is wrong alone", err)
	}
	if err := tune.Demand(results[:2]); err != nil {
		t.Errorf("Demand = %v of keys that are right or missing, want none", err)
	}
	verdicts := tune.RunChecks(t.Context(), n.tuner(t).Checks(tune.CheckOptions{}))
	if v := verdictOf(t, verdicts, "sysctls writable"); v.State != tune.Warn || v.Fix == "" {
		t.Errorf("verdict %+v, want a warning with a fix", v)
	}
}

// prepared creates a node on which all settings are already right.
func (n node) prepared(t *testing.T) (sysctls []tune.Sysctl, conntrack tune.ConntrackOptions) {
	t.Helper()
	n.conntrack(t, 4)
	sysctls = tune.IPVSSysctls(tune.IPVSOptions{Release: "5.4.0", StrictARP: true})
	for _, s := range sysctls {
		n.sysctl(t, s.Key, s.Value)
	}
	n.sysctl(t, netfilter+"max", "131072")
	n.sysctl(t, netfilter+"udp_timeout", "60")
	n.file(t, hashSize, "32768")
	return sysctls, tune.ConntrackOptions{MaxPerCore: 32768, UDP: time.Minute}
}

// On a node that is set up already nothing is written, so nothing is refused, warned of, or added
// to the journal.
func TestReadOnlyNodeThatIsRight(t *testing.T) {
	if !ownMounts(t) {
		return
	}
	n := newNode(t)
	sysctls, conntrack := n.prepared(t)
	n.readOnly(t)
	n.readOnlyTree(t, "sys")
	tuner, logged := n.observed()
	results := append(tuner.Apply(t.Context(), sysctls), tuner.ApplyConntrack(t.Context(), conntrack)...)
	if want := len(sysctls) + 3; len(results) != want {
		t.Errorf("%d results, want %d", len(results), want)
	}
	for _, r := range results {
		if r.Outcome != tune.Right || r.Err != nil || r.Note != "" {
			t.Errorf("%s, want right and no more", r)
		}
	}
	if logs := logged(); len(logs) > 0 {
		t.Errorf("log %v, want nothing to tell", logs)
	}
	if _, err := os.Stat(n.run); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("run directory: %v, want none, for want of a change", err)
	}
}

// A wanted key that is wrong and cannot be set is named, and that is all.
func TestReadOnlyNodeThatLacksWhatIsWanted(t *testing.T) {
	if !ownMounts(t) {
		return
	}
	n := newNode(t)
	sysctls, conntrack := n.prepared(t)
	n.sysctl(t, "net.ipv4.vs.expire_nodest_conn", "0")
	n.sysctl(t, netfilter+"udp_timeout", "30")
	n.file(t, hashSize, "16384")
	n.readOnly(t)
	n.readOnlyTree(t, "sys")
	tuner, logged := n.observed()
	results := append(tuner.Apply(t.Context(), sysctls), tuner.ApplyConntrack(t.Context(), conntrack)...)
	if err := tune.Failure(results, tune.Required); err != nil {
		t.Errorf("failure of what is required: %v, want none", err)
	}
	err := tune.Failure(results, tune.Wanted)
	if !errors.Is(err, unix.EROFS) {
		t.Fatalf("failure of what is wanted: %v, want read-only", err)
	}
	got := strings.ReplaceAll(err.Error(), n.root, "ROOT")
	want := `set sysctl net.ipv4.vs.expire_nodest_conn from "0" to "1": open ROOT/proc/sys/net/ipv4/vs/expire_nodest_conn: read-only file system
set nf_conntrack hashsize from "16384" to 32768: open ROOT/sys/module/nf_conntrack/parameters/hashsize: read-only file system
set sysctl net.netfilter.nf_conntrack_udp_timeout from "30" to "60": open ROOT/proc/sys/net/netfilter/nf_conntrack_udp_timeout: read-only file system`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("failure (-want +got):\n%s", diff)
	}
	for _, e := range logged() {
		if e.Message != "sysctl refused" {
			t.Errorf("log %q, want refusals alone", e.Message)
		}
	}
	if got := len(logged()); got != 3 {
		t.Errorf("%d lines in the log, want one for each of 3 keys", got)
	}
}

// If the operator sets a key after the log says that it cannot be set, the key keeps its value
// after cleanup.
func TestRefusedKeyIsNotOursToRestore(t *testing.T) {
	if !ownMounts(t) {
		return
	}
	n := newNode(t)
	n.sysctl(t, key, "0")
	n.sysctl(t, arpIgnore, "0")
	n.tuner(t).Apply(t.Context(), []tune.Sysctl{{Key: arpIgnore, Value: "1"}})
	n.readOnly(t)
	again := append(forward(tune.Required), tune.Sysctl{Key: arpIgnore, Value: "2"})
	for _, r := range n.tuner(t).Apply(t.Context(), again) {
		if r.Outcome != tune.Refused || r.Note != "" {
			t.Errorf("%s, want refused and no more", r)
		}
	}
	if err := unix.Unmount(n.path("proc/sys"), unix.MNT_DETACH); err != nil {
		t.Fatalf("make the tree writable again: %v", err)
	}
	n.sysctl(t, key, "1")
	want := []string{arpIgnore + "=0: restored (it was 1)"}
	if diff := cmp.Diff(want, texts(n.tuner(t).Restore(t.Context()))); diff != "" {
		t.Errorf("restored (-want +got):\n%s", diff)
	}
	n.wantSysctl(t, key, "1")
}

func TestRefusedRestoreKeepsTheJournal(t *testing.T) {
	if !ownMounts(t) {
		return
	}
	n := newNode(t)
	n.sysctl(t, key, "0")
	n.tuner(t).Apply(t.Context(), forward(tune.Required))
	n.readOnly(t)
	got := n.tuner(t).RestoreKeys(t.Context(), key)
	if len(got) != 1 || !errors.Is(got[0].Err, unix.EROFS) {
		t.Fatalf("Restore = %v, want refused as read-only", texts(got))
	}
	wantFiles(t, n.run, "sysctls.json")
}

// A container that is not privileged sets sysctls of the network where the node's own
// are mounted, and reads all others where they always are.
func TestSysctlsOfTheHostBesideReadOnlyOnes(t *testing.T) {
	if !ownMounts(t) {
		return
	}
	n := newNode(t)
	n.sysctl(t, key, "0")
	n.readOnly(t)
	n.file(t, "host/"+sysctlFile(key), "0")
	results := n.tuner(t).Apply(t.Context(), forward(tune.Required))
	if err := tune.Failure(results, tune.Required); err != nil {
		t.Fatal(err)
	}
	n.wantFile(t, "host/"+sysctlFile(key), "1")
	n.wantSysctl(t, key, "0") // two files here, and one in a kernel
	if v := verdictOf(t, tune.RunChecks(t.Context(), n.tuner(t).Checks(tune.CheckOptions{})), "sysctls writable"); v.State != tune.OK {
		t.Errorf("verdict %+v, want ok", v)
	}
	want := []string{key + "=0: restored (it was 1)"}
	if diff := cmp.Diff(want, texts(n.tuner(t).RestoreKeys(t.Context(), key))); diff != "" {
		t.Errorf("restored (-want +got):\n%s", diff)
	}
	n.wantFile(t, "host/"+sysctlFile(key), "0")
	if release, err := n.tuner(t).Release(); err != nil || release != "6.1.0-18-amd64" {
		t.Errorf("release %q, error %v", release, err)
	}
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

// A run directory is asked for as it is: read-only, full, or out of files.
func TestRunDirectoryThatTakesNothing(t *testing.T) {
	if !ownMounts(t) {
		return
	}
	for name, tt := range map[string]struct {
		flags   uintptr
		options string
		fill    bool
		want    tune.State
	}{
		"room":      {0, "size=64k", false, tune.OK},
		"no bound":  {0, "size=0,nr_inodes=0", false, tune.OK},
		"read-only": {unix.MS_RDONLY, "size=64k", false, tune.Lacks},
		"full":      {0, "size=4k", true, tune.Warn},
		"no files":  {0, "size=64k,nr_inodes=1", false, tune.Lacks},
	} {
		t.Run(name, func(t *testing.T) {
			n := well(t)
			if err := os.MkdirAll(n.run, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := unix.Mount("tmpfs", n.run, "tmpfs", tt.flags, tt.options); err != nil {
				t.Fatalf("mount: %v", err)
			}
			defer func() { _ = unix.Unmount(n.run, unix.MNT_DETACH) }()
			if tt.fill {
				writeFile(t, filepath.Join(n.run, "fill"), strings.Repeat("x", 4096), 0o600)
			}
			o := options()
			o.Room = nil
			if v := verdictOf(t, tune.RunChecks(t.Context(), n.tuner(t).Doctor(o)), "run directory"); v.State != tt.want || (v.Fix == "") != (tt.want == tune.OK) {
				t.Errorf("%+v, want %s and a remedy", v, tt.want)
			}
		})
	}
}
