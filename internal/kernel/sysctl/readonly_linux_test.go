package sysctl_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/sysctl"
	"github.com/kube-ipvs/kube-ipvs/internal/testkit/nodefs"
)

func TestReadOnlySysctls(t *testing.T) {
	if !nodefs.OwnMounts(t) {
		return
	}
	n := newNode(t)
	n.Sysctl(t, key, "0")
	n.Sysctl(t, "net.ipv4.vs.conntrack", "1")
	n.ReadOnly(t)
	results := n.handle(t).Apply(t.Context(), []sysctl.Sysctl{
		{Key: "net.ipv4.vs.conntrack", Value: "1", Policy: sysctl.Required},
		{Key: "net.ipv4.vs.missing", Value: "1", Policy: sysctl.Required},
		{Key: key, Value: "1", Policy: sysctl.Required},
	})
	var outcomes []string
	for _, r := range results {
		outcomes = append(outcomes, r.Outcome.String())
	}
	if got := strings.Join(outcomes, " "); got != "right missing refused" {
		t.Fatalf("outcomes %q, want %q", got, "right missing refused")
	}
	err := sysctl.Failure(results, sysctl.Required)
	if !errors.Is(err, unix.EROFS) || !strings.Contains(err.Error(), `set sysctl net.ipv4.ip_forward from "0" to "1"`) {
		t.Errorf("Failure = %v, want the key, both values and the reason", err)
	}
	err = sysctl.Demand(results)
	if !errors.Is(err, unix.EROFS) || !strings.Contains(err.Error(), "remedy: on the host: sysctl -w net.ipv4.ip_forward=1; or mount") {
		t.Errorf("Demand = %v, want the reason, and the remedy for the key that is wrong alone", err)
	}
	if err := sysctl.Demand(results[:2]); err != nil {
		t.Errorf("Demand = %v of keys that are right or missing, want none", err)
	}
}

// prepared makes a node on which the operator has set everything before.
func (n node) prepared(t *testing.T) (sysctls []sysctl.Sysctl, conntrack sysctl.ConntrackOptions) {
	t.Helper()
	n.conntrack(t, 4)
	sysctls = sysctl.IPVSSysctls(sysctl.IPVSOptions{Release: "5.4.0", StrictARP: true})
	for _, s := range sysctls {
		n.Sysctl(t, s.Key, s.Value)
	}
	n.Sysctl(t, netfilter+"max", "131072")
	n.Sysctl(t, netfilter+"udp_timeout", "60")
	n.File(t, hashSize, "32768")
	return sysctls, sysctl.ConntrackOptions{MaxPerCore: 32768, UDP: time.Minute}
}

// On a node that is set up already nothing is written, so nothing is refused, logged, or put in the
// journal.
func TestReadOnlyNodeThatIsRight(t *testing.T) {
	if !nodefs.OwnMounts(t) {
		return
	}
	n := newNode(t)
	sysctls, conntrack := n.prepared(t)
	n.ReadOnly(t)
	n.ReadOnlyTree(t, "sys")
	handle, logged := n.observed()
	results := append(handle.Apply(t.Context(), sysctls), handle.ApplyConntrack(t.Context(), conntrack)...)
	if want := len(sysctls) + 3; len(results) != want {
		t.Errorf("%d results, want %d", len(results), want)
	}
	for _, r := range results {
		if r.Outcome != sysctl.Right || r.Err != nil || r.Note != "" {
			t.Errorf("%s, want right and no more", r)
		}
	}
	if logs := logged(); len(logs) > 0 {
		t.Errorf("log %v, want nothing to tell", logs)
	}
	if _, err := os.Stat(n.Run); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("run directory: %v, want none, for want of a change", err)
	}
}

// A wanted key that is wrong and cannot be set is named, and that is all.
func TestReadOnlyNodeThatLacksWhatIsWanted(t *testing.T) {
	if !nodefs.OwnMounts(t) {
		return
	}
	n := newNode(t)
	sysctls, conntrack := n.prepared(t)
	n.Sysctl(t, "net.ipv4.vs.expire_nodest_conn", "0")
	n.Sysctl(t, netfilter+"udp_timeout", "30")
	n.File(t, hashSize, "16384")
	n.ReadOnly(t)
	n.ReadOnlyTree(t, "sys")
	handle, logged := n.observed()
	results := append(handle.Apply(t.Context(), sysctls), handle.ApplyConntrack(t.Context(), conntrack)...)
	if err := sysctl.Failure(results, sysctl.Required); err != nil {
		t.Errorf("failure of what is required: %v, want none", err)
	}
	err := sysctl.Failure(results, sysctl.Wanted)
	if !errors.Is(err, unix.EROFS) {
		t.Fatalf("failure of what is wanted: %v, want read-only", err)
	}
	got := strings.ReplaceAll(err.Error(), n.Root, "ROOT")
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

// An operator who sets a key after its refusal keeps it after cleanup.
func TestRefusedKeyIsNotOursToRestore(t *testing.T) {
	if !nodefs.OwnMounts(t) {
		return
	}
	n := newNode(t)
	n.Sysctl(t, key, "0")
	n.Sysctl(t, arpIgnore, "0")
	n.handle(t).Apply(t.Context(), []sysctl.Sysctl{{Key: arpIgnore, Value: "1"}})
	n.ReadOnly(t)
	again := append(forward(sysctl.Required), sysctl.Sysctl{Key: arpIgnore, Value: "2"})
	for _, r := range n.handle(t).Apply(t.Context(), again) {
		if r.Outcome != sysctl.Refused || r.Note != "" {
			t.Errorf("%s, want refused and no more", r)
		}
	}
	if err := unix.Unmount(n.Path("proc/sys"), unix.MNT_DETACH); err != nil {
		t.Fatalf("make the tree writable again: %v", err)
	}
	n.Sysctl(t, key, "1")
	want := []string{arpIgnore + "=0: restored (it was 1)"}
	if diff := cmp.Diff(want, texts(n.handle(t).Restore(t.Context()))); diff != "" {
		t.Errorf("restored (-want +got):\n%s", diff)
	}
	n.WantSysctl(t, key, "1")
}

func TestRefusedRestoreKeepsTheJournal(t *testing.T) {
	if !nodefs.OwnMounts(t) {
		return
	}
	n := newNode(t)
	n.Sysctl(t, key, "0")
	n.handle(t).Apply(t.Context(), forward(sysctl.Required))
	n.ReadOnly(t)
	got := n.handle(t).RestoreKeys(t.Context(), key)
	if len(got) != 1 || !errors.Is(got[0].Err, unix.EROFS) {
		t.Fatalf("Restore = %v, want refused as read-only", texts(got))
	}
	wantFiles(t, n.Run, "sysctls.json")
}

// A container that is not privileged sets sysctls of the network where the node's own
// are mounted, and reads all others where they always are.
func TestSysctlsOfTheHostBesideReadOnlyOnes(t *testing.T) {
	if !nodefs.OwnMounts(t) {
		return
	}
	n := newNode(t)
	n.Sysctl(t, key, "0")
	n.ReadOnly(t)
	n.File(t, "host/"+nodefs.SysctlFile(key), "0")
	results := n.handle(t).Apply(t.Context(), forward(sysctl.Required))
	if err := sysctl.Failure(results, sysctl.Required); err != nil {
		t.Fatal(err)
	}
	n.WantFile(t, "host/"+nodefs.SysctlFile(key), "1")
	n.WantSysctl(t, key, "0") // two files here, and one in a kernel
	want := []string{key + "=0: restored (it was 1)"}
	if diff := cmp.Diff(want, texts(n.handle(t).RestoreKeys(t.Context(), key))); diff != "" {
		t.Errorf("restored (-want +got):\n%s", diff)
	}
	n.WantFile(t, "host/"+nodefs.SysctlFile(key), "0")
	if release, err := n.Files().Release(); err != nil || release != "6.1.0-18-amd64" {
		t.Errorf("release %q, error %v", release, err)
	}
}

// A pipe without a writer stands for a key whose reader waits for a kernel lock.
func TestKeyThatNeverAnswers(t *testing.T) {
	n := newNode(t)
	n.Sysctl(t, "net.ipv4.vs.conntrack", "0")
	pipe := n.Path("proc/sys/net/ipv4/ip_forward")
	if err := unix.Mkfifo(pipe, 0o644); err != nil {
		t.Fatalf("make a pipe: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	results := n.handle(t).Apply(ctx, forward(sysctl.Required))
	if !errors.Is(results[0].Err, context.DeadlineExceeded) || results[0].Outcome != sysctl.Refused {
		t.Errorf("result %s, want refused at the deadline", results[0])
	}
	// Let the reader that was left behind go.
	w, err := os.OpenFile(pipe, os.O_WRONLY, 0)
	if err != nil {
		t.Fatalf("open the pipe: %v", err)
	}
	_ = w.Close()
}
