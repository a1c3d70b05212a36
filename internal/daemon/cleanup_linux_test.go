package daemon

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kube-ipvs/kube-ipvs/internal/config"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/migrate"
)

// A kernel without ip_vs is no obstacle: its other objects are cleaned, twice if
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
		if err := Cleanup(t.Context(), c, migrate.TargetNone, &out); err != nil {
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

// TestCleanupOfBothBackends: an agent with another --iptables-backend wrote into the other one, and cleanup verifies both.
func TestCleanupOfBothBackends(t *testing.T) {
	runtime.LockOSThread() // and never unlocked: the thread ends with the test
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Skipf("needs a network namespace of its own: %v", err)
	}
	kinds := []string{"nft", "legacy"}
	on := func(kind string, args ...string) (string, error) {
		out, err := exec.CommandContext(t.Context(), "iptables-"+kind, args...).CombinedOutput()
		return string(out), err
	}
	for _, kind := range kinds {
		if out, err := on(kind, "-t", "nat", "-S"); err != nil {
			t.Skipf("needs both backends: %v\n%s", err, out)
		}
	}
	for _, used := range kinds {
		for _, to := range []migrate.Target{migrate.TargetNone, migrate.TargetIPTables} {
			c, err := config.Defaults().Check("node-a")
			if err != nil {
				t.Fatal(err)
			}
			c.RunDir, c.IPTables, c.LogLevel = t.TempDir(), used, "error"
			for _, kind := range kinds {
				for _, args := range [][]string{{"-N", "KUBE-SERVICES"}, {"-N", "STRANGER"}, {"-A", "PREROUTING", "-j", "KUBE-SERVICES"}} {
					_, _ = on(kind, append([]string{"-t", "nat"}, args...)...) // some are there from before
				}
			}
			var out strings.Builder
			if err := Cleanup(t.Context(), c, to, &out); err != nil {
				t.Fatalf("with %s, for %q: %v\n%s", used, to, err, &out)
			}
			for _, kind := range kinds {
				left, err := on(kind, "-t", "nat", "-S")
				stays := to == migrate.TargetIPTables && kind != used // it may be kube-proxy's
				if err != nil || strings.Contains(left, "KUBE-SERVICES") != stays || !strings.Contains(left, "STRANGER") {
					t.Errorf("with %s, for %q: error %v, %s after cleanup:\n%s", used, to, err, kind, left)
				}
			}
		}
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
