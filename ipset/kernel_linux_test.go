package ipset_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/kube-ipvs/kube-ipvs/ipset"
	"github.com/kube-ipvs/kube-ipvs/ipset/ipsettest"
)

// openKernel returns a handle on a fresh network namespace.
func openKernel(t testing.TB) *ipset.Handle {
	t.Helper()
	return ipset.OpenInside(t, ipset.Options{})
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
