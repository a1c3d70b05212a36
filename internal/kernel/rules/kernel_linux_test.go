package rules_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"
	"golang.org/x/sys/unix"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules/rulestest"
	"github.com/kube-ipvs/kube-ipvs/internal/testkit/poll"
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

// newHandle has a handle wait a minute for each process unless the options say otherwise, so that no process is killed because
// the machine is busy.
func newHandle(t *testing.T, opts rules.Options) *rules.Handle {
	t.Helper()
	opts.Owned = rulestest.Owned
	if opts.Timeout == 0 {
		opts.Timeout = poll.Patience
	}
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
		Client: newHandle(t, rules.Options{Backend: b, Generation: generation}),
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

// forBackends runs the test in a fresh namespace for each backend.
func forBackends(t *testing.T, test func(t *testing.T, b rules.Backend)) {
	for _, b := range backends {
		t.Run(string(b), func(t *testing.T) {
			namespace(t)
			needBackend(t, b)
			test(t, b)
		})
	}
}

// The kernel refuses MASQUERADE outside of nat: nft names the line, legacy
// fails the COMMIT as a whole.
func TestKernelRefusalHitsOneChain(t *testing.T) {
	forBackends(t, func(t *testing.T, b rules.Backend) {
		h := newHandle(t, rules.Options{Backend: b})
		var changes []rules.ChainChange
		for i := range 20 {
			c := rules.ChainChange{Op: rules.Add, Key: rules.ChainKey{Family: rules.IPv4, Table: "filter", Name: fmt.Sprintf("KUBE-%02d", i)}}
			switch i {
			case 7:
				c.Chain.Rules = "-j MASQUERADE"
			case 19:
				c.Chain.Rules = "-j RETURN"
			default:
				// Halving must not leave a chain behind over its callee.
				c.Chain.Rules = "-j KUBE-19"
			}
			changes = append(changes, c)
		}
		for i, err := range h.WriteChains(t.Context(), changes) {
			if (err != nil) != (i == 7) {
				t.Errorf("row %d: %v", i, err)
			}
		}
		chains, _, err := h.List(t.Context())
		if err != nil || len(chains) != 19 {
			t.Errorf("%d chains, %v", len(chains), err)
		}
	})
}

// A process that holds the lock delays legacy and does not affect nft.
func TestLockHeldByAnother(t *testing.T) {
	forBackends(t, func(t *testing.T, b rules.Backend) {
		h := newHandle(t, rules.Options{Backend: b, LockWait: time.Second})
		release := holdLock(t)
		errs := h.WriteChains(t.Context(), addA())
		if b == rules.NFT && errs != nil {
			t.Errorf("nft waited: %v", errs)
		}
		if b == rules.Legacy && (len(errs) != 1 || !errors.Is(errs[0], rules.ErrBusy)) {
			t.Errorf("legacy: %v, want busy", errs)
		}
		jump := rules.JumpChange{Op: rules.Delete, Key: rules.JumpKey{Family: rules.IPv4, Table: "nat", Hook: "OUTPUT", Target: "KUBE-A"}}
		errs = h.WriteJumps(t.Context(), []rules.JumpChange{jump})
		if b == rules.Legacy && (len(errs) != 1 || !errors.Is(errs[0], rules.ErrBusy)) {
			t.Errorf("legacy jump: %v, want busy", errs)
		}
		later := time.AfterFunc(300*time.Millisecond, release)
		defer later.Stop()
		if errs := newHandle(t, rules.Options{Backend: b}).WriteChains(t.Context(), addA()); errs != nil {
			t.Errorf("after the wait: %v", errs)
		}
	})
}

func holdLock(t *testing.T) (release func()) {
	t.Helper()
	file, err := os.OpenFile(os.Getenv("XTABLES_LOCKFILE"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	release = sync.OnceFunc(func() { file.Close() }) // closing unlocks
	t.Cleanup(release)
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	return release
}

func TestBackendIsWhereTheRulesAre(t *testing.T) {
	const (
		hint  = "*mangle\n:KUBE-IPTABLES-HINT - [0:0]\nCOMMIT\n"
		other = "*filter\n:X - [0:0]\n-A X -j RETURN\n-A X -j ACCEPT\nCOMMIT\n"
		one   = "*filter\n:Y - [0:0]\n-A Y -j RETURN\nCOMMIT\n"
	)
	for _, tc := range []struct {
		name, nft, legacy string
		want              rules.Backend
	}{
		{"the kubelet's hint wins over more rules, nft", hint, other, rules.NFT},
		{"the kubelet's hint wins over more rules, legacy", other, hint, rules.Legacy},
		{"more rules, nft", other, one, rules.NFT},
		{"more rules, legacy", one, other, rules.Legacy},
		{"legacy alone", "", one, rules.Legacy},
		{"nft alone", one, "", rules.NFT},
	} {
		t.Run(tc.name, func(t *testing.T) {
			namespace(t)
			for b, text := range map[rules.Backend]string{rules.NFT: tc.nft, rules.Legacy: tc.legacy} {
				needBackend(t, b)
				tool(t, text, binary(rules.IPv6, b, "-restore"), "--noflush")
			}
			if got := newHandle(t, rules.Options{}).Backend(); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

// Canonical equals the form that the tools print, for every spelling that a caller or an older tool
// may use.
func TestCanonicalAgreesWithTools(t *testing.T) {
	forBackends(t, func(t *testing.T, b rules.Backend) {
		for _, f := range []rules.Family{rules.IPv4, rules.IPv6} {
			var text strings.Builder
			in, want, got := map[string]string{}, map[string]string{}, map[string]string{}
			for i, tc := range spellings {
				if tc.family == f {
					name := fmt.Sprintf("KUBE-%02d", i)
					in[name], want[name] = tc.in, tc.want
					fmt.Fprintf(&text, "*%s\n:%s - [0:0]\n-A %s %s\nCOMMIT\n", tc.table, name, name, tc.in)
				}
			}
			tool(t, text.String(), binary(f, b, "-restore"), "--noflush")
			for line := range strings.Lines(saved(t, f, b)) {
				if rule, ok := strings.CutPrefix(line, "-A KUBE-"); ok {
					name, rule, _ := strings.Cut("KUBE-"+rule, " ")
					got[name] = strings.TrimSpace(rule)
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s saves (-want +got):\n%s\nof %q", b, diff, in)
			}
		}
	})
}

// A table that nothing has used is not loaded by asking for its stamp.
func TestStampLoadsNothing(t *testing.T) {
	namespace(t)
	needBackend(t, rules.Legacy)
	h := newHandle(t, rules.Options{Backend: rules.Legacy, Families: []rules.Family{rules.IPv4}})
	for range 2 {
		if _, err := h.Stamp(rules.IPv4, "security"); !errors.Is(err, rules.ErrUnsupported) {
			t.Fatalf("got %v, want %v", err, rules.ErrUnsupported)
		}
	}
	if _, err := h.Stamp(rules.IPv4, "nat"); err != nil {
		t.Error(err)
	}
}

// A flush of the rules with the tools changes the stamp.
func TestStampFollowsFlush(t *testing.T) {
	namespace(t)
	needBackend(t, rules.Legacy)
	h := newHandle(t, rules.Options{Backend: rules.Legacy})
	for _, f := range h.Families() {
		stamp := func() uint64 {
			t.Helper()
			n, err := h.Stamp(f, "nat")
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		empty := stamp()
		tool(t, "", binary(f, rules.Legacy, ""), "-t", "nat", "-A", "OUTPUT", "-p", "tcp", "-j", "RETURN")
		one := stamp()
		tool(t, "", binary(f, rules.Legacy, ""), "-t", "nat", "-S")
		if one == empty || stamp() != one {
			t.Errorf("%s: %#x, with a rule %#x, after a listing %#x", f, empty, one, stamp())
		}
		tool(t, "", binary(f, rules.Legacy, ""), "-t", "nat", "-F")
		if stamp() != empty {
			t.Errorf("%s: %#x, was %#x before the rule", f, stamp(), empty)
		}
	}
}

// The kernel is asked for matches of legacy without a process, and answers as its tools do.
func TestFindMatchOfLegacy(t *testing.T) {
	namespace(t)
	needBackend(t, rules.Legacy)
	h := newHandle(t, rules.Options{Backend: rules.Legacy})
	if err := h.FindMatch(t.Context(), "comment"); err != nil {
		t.Errorf("match comment: %v", err)
	}
	if err := h.FindMatch(t.Context(), "no-such-match"); !errors.Is(err, rules.ErrUnsupported) {
		t.Errorf("match no-such-match: %v, want %v", err, rules.ErrUnsupported)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := h.FindMatch(ended, "no-such-match"); err == nil {
		t.Error("a match that no kernel has is there")
	}
}

// BenchmarkWrite writes chains and jumps, each by one restore; jumps that are
// there cost a listing of their hook.
func BenchmarkWrite(b *testing.B) {
	const n = 50
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		b.Skipf("no network namespace: %v", err)
	}
	h, err := rules.New(zap.NewNop(), rules.Options{Families: []rules.Family{rules.IPv4}, Owned: rulestest.Owned})
	if err != nil {
		b.Skipf("no iptables: %v", err)
	}
	var chains []rules.ChainChange
	var jumps []rules.JumpChange
	for i := range n {
		name := fmt.Sprintf("KUBE-%02d", i)
		chains = append(chains, rules.ChainChange{Op: rules.Add, Key: rules.ChainKey{Family: rules.IPv4, Table: "nat", Name: name}, Chain: rules.Chain{Rules: "-j RETURN"}})
		jumps = append(jumps, rules.JumpChange{Op: rules.Add, Key: rules.JumpKey{Family: rules.IPv4, Table: "nat", Hook: "OUTPUT", Target: name}})
	}
	b.Run(fmt.Sprintf("chains=%d/restore", n), func(b *testing.B) {
		for b.Loop() {
			if errs := h.WriteChains(b.Context(), chains); errs != nil {
				b.Fatal(errs)
			}
		}
	})
	b.Run(fmt.Sprintf("jumps=%d/there", n), func(b *testing.B) {
		for b.Loop() {
			if errs := h.WriteJumps(b.Context(), jumps); errs != nil {
				b.Fatal(errs)
			}
		}
	})
}
