package rules_test

import (
	"bytes"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"
	"golang.org/x/sys/unix"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules/rulestest"
)

var backends = []rules.Backend{rules.NFT, rules.Legacy}

// namespace puts the test's goroutine into a network namespace of its own.
// The thread stays locked, so it ends with the goroutine and the namespace
// with it. XTABLES_LOCKFILE keeps legacy tools off the lock of the machine.
func namespace(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root for a network namespace")
	}
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Skipf("no network namespace: %v", err)
	}
	tool(t, "", "ip", "link", "set", "lo", "up")
	t.Setenv("XTABLES_LOCKFILE", t.TempDir()+"/xtables.lock")
}

// tool runs a program with the given input and returns what it prints.
func tool(t testing.TB, stdin string, name string, args ...string) string {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		t.Skipf("no %s on this machine", name)
	}
	var stderr bytes.Buffer
	cmd := exec.Command(name, args...)
	cmd.Stdin, cmd.Stderr = strings.NewReader(stdin), &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %v: %v: %s", name, args, err, stderr.String())
	}
	return string(out)
}

// binary names the tool of a family and backend, as in iptables-nft-save.
func binary(f rules.Family, b rules.Backend, suffix string) string {
	base := "iptables-"
	if f == rules.IPv6 {
		base = "ip6tables-"
	}
	return base + string(b) + suffix
}

// needBackend skips where the tools or the kernel's side are missing.
func needBackend(t *testing.T, b rules.Backend) {
	t.Helper()
	path, err := exec.LookPath(binary(rules.IPv4, b, ""))
	if err != nil {
		t.Skipf("no tools of backend %s", b)
	}
	if out, err := exec.Command(path, "-t", "nat", "-S").CombinedOutput(); err != nil {
		t.Skipf("kernel has no backend %s: %s", b, out)
	}
}

func makeSets(t *testing.T) {
	t.Helper()
	var text strings.Builder
	for f, option := range map[rules.Family]string{rules.IPv4: " family inet", rules.IPv6: " family inet6"} {
		for name, kind := range rulestest.Sets(f) {
			if kind == "bitmap:port" {
				text.WriteString("create " + name + " bitmap:port range 0-65535\n")
			} else {
				text.WriteString("create " + name + " " + kind + option + "\n")
			}
		}
	}
	tool(t, text.String(), "ipset", "restore")
}

func newHandle(t *testing.T, opts rules.Options) *rules.Handle {
	t.Helper()
	opts.Owned = rulestest.Owned
	h, err := rules.New(zaptest.NewLogger(t, zaptest.Level(zap.WarnLevel)), opts)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// saved is the host's state without the comment lines, which carry the time.
func saved(t *testing.T, f rules.Family, b rules.Backend) string {
	lines := strings.SplitAfter(tool(t, "", binary(f, b, "-save")), "\n")
	return strings.Join(slices.DeleteFunc(lines, func(s string) bool { return strings.HasPrefix(s, "#") }), "")
}

func newHost(t *testing.T, b rules.Backend) rulestest.Host {
	namespace(t)
	needBackend(t, b)
	makeSets(t)
	return rulestest.Host{
		Client: newHandle(t, rules.Options{Backend: b}),
		Load: func(f rules.Family, text string) error {
			tool(t, text, binary(f, b, "-restore"), "--noflush")
			return nil
		},
		Save: func(f rules.Family) string { return saved(t, f, b) },
	}
}

func TestKernelKeepsContract(t *testing.T) {
	for _, b := range backends {
		t.Run(string(b), func(t *testing.T) {
			rulestest.Contract(t, func(t *testing.T) rulestest.Host { return newHost(t, b) })
		})
	}
}
