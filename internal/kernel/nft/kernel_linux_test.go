package nft_test

import (
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"go.uber.org/zap/zaptest"
	"golang.org/x/sys/unix"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nft"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nft/nfttest"
	"github.com/kube-ipvs/kube-ipvs/internal/testkit/poll"
)

// enterNamespace moves the test's goroutine into a network namespace of its own. The thread is
// never unlocked and so ends with the goroutine.
func enterNamespace(t testing.TB) {
	t.Helper()
	runtime.LockOSThread()
	err := unix.Unshare(unix.CLONE_NEWNET)
	if errors.Is(err, unix.EPERM) {
		t.Skip("skipped: no permission to make a network namespace")
	}
	if err != nil {
		t.Fatal(err)
	}
}

// openKernel is a Handle in a fresh namespace, or a skip where the kernel has no nf_tables.
func openKernel(t testing.TB) *nft.Handle {
	t.Helper()
	enterNamespace(t)
	h, err := nft.New(zaptest.NewLogger(t), nft.Options{Timeout: poll.Patience})
	if err != nil {
		t.Fatal(err)
	}
	probe := nft.Pass{Tables: []nft.TableChange{{Op: nft.Add, Family: nft.IPv4}}}
	if err := h.Check(t.Context(), probe).Err(); errors.Is(err, nft.ErrUnsupported) {
		t.Skipf("skipped: no nf_tables here: %v", err)
	} else if err != nil {
		t.Fatal(err)
	}
	return h
}

// tool runs nft in the namespace of the calling thread.
func tool(t testing.TB, stdin string, args ...string) string {
	t.Helper()
	cmd := exec.Command("nft", args...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("nft %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// hasTool reports whether nft is installed.
func hasTool() bool {
	_, err := exec.LookPath("nft")
	return err == nil
}

func TestKernelKeepsContract(t *testing.T) {
	nfttest.Contract(t, func(t *testing.T) nfttest.Subject {
		s := nfttest.Subject{Client: openKernel(t)}
		if hasTool() {
			s.Disturb = nfttest.Disturb{
				Flush: func(t *testing.T) { tool(t, "", "flush", "ruleset") },
				AddRule: func(t *testing.T, k nft.Key, r nft.Rule) {
					tool(t, fmt.Sprintf("add rule %s %s", k, r.Text(k.Family)), "-f", "-")
				},
				DeleteElement: func(t *testing.T, k nft.Key, set nft.Set, e nft.Element) {
					tool(t, fmt.Sprintf("delete element %s { %s }", k, e.Text(set)), "-f", "-")
				},
				OtherVersion: func(t *testing.T, f nft.Family) {
					tool(t, fmt.Sprintf("table %s %s {\n chain filter-INPUT {\n type filter hook output priority 3; policy drop;\n }\n}\n", f, nft.TableName), "-f", "-")
				},
			}
			s.Readers = map[string]func(*testing.T) string{"nft list ruleset": func(t *testing.T) string { return tool(t, "", "list", "ruleset") }}
		}
		return s
	})
}
