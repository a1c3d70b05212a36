package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kube-ipvs/kube-ipvs/internal/config"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs"
)

// A kernel without ip_vs is no obstacle: what it does have is cleaned, twice if
// asked, and a node without anything of ours is clean.
func TestCleanupOnWhateverKernelThisIs(t *testing.T) {
	runtime.LockOSThread() // and never unlocked: the thread ends with the test
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Skipf("needs a network namespace of its own: %v", err)
	}
	if _, err := exec.LookPath("iptables-nft"); err != nil {
		t.Skipf("needs the tools of iptables: %v", err)
	}
	c, err := config.Defaults().Check("node-a")
	if err != nil {
		t.Fatal(err)
	}
	c.RunDir, c.IPTables, c.LogLevel = t.TempDir(), "nft", "error"
	tool(t, "-t", "nat", "-N", "KUBE-SERVICES")
	tool(t, "-t", "nat", "-N", "STRANGER")
	for range 2 {
		var out strings.Builder
		if err := cleanup(t.Context(), c, ipvs.Nobody, &out); err != nil {
			t.Fatalf("%v\n%s", err, &out)
		}
		if left := tool(t, "-t", "nat", "-S"); strings.Contains(left, "KUBE-") || !strings.Contains(left, "STRANGER") {
			t.Errorf("after cleanup:\n%s", left)
		}
	}
	if _, err := os.Stat(filepath.Join(c.RunDir, "agent.sock")); err == nil {
		t.Error("cleanup opened the socket of an agent")
	}
}

func tool(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "iptables-nft", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("iptables-nft %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}
