package conntrack_test

import (
	"errors"
	"net/netip"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap/zaptest"
	"golang.org/x/sys/unix"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/conntrack"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/conntrack/conntracktest"
)

func TestKernelKeepsContract(t *testing.T) {
	for name, test := range contract {
		t.Run(name, func(t *testing.T) {
			h, k := kernel(t, conntrack.Options{})
			test(t, world{h, k})
		})
	}
}

// kernel returns a handle in a new network namespace, and a second one of another process in it.
func kernel(t testing.TB, opts conntrack.Options) (*conntrack.Handle, *conntracktest.Kernel) {
	t.Helper()
	enterNamespace(t)
	h, err := conntrack.New(zaptest.NewLogger(t), opts)
	if errors.Is(err, conntrack.ErrUnsupported) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	t.Cleanup(h.Close)
	return h, otherProcess(t)
}

func otherProcess(t testing.TB) *conntracktest.Kernel {
	t.Helper()
	k, err := conntracktest.Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	return k
}

// enterNamespace moves the test to a network namespace that ends with it. The
// thread is never given back, so nothing else can land in that namespace.
func enterNamespace(t testing.TB) {
	t.Helper()
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Skipf("no network namespace of its own: %v", err)
	}
}

// TestOtherNamespaceIsUntouched: the same flow in another namespace stays, also
// when the sweep is made on a thread that is in it.
func TestOtherNamespaceIsUntouched(t *testing.T) {
	h, here := kernel(t, conntrack.Options{})
	stale := from(dns, "10.244.0.1:4001", "10.244.9.9:5353")
	world{h, here}.add(t, stale)
	done := make(chan struct{})
	go func() {
		defer close(done)
		enterNamespace(t)
		there := otherProcess(t)
		w := world{h, there}
		w.add(t, stale)
		w.sweep(t, 1, keep(dns))
		w.want(t, stale)
		world{h, here}.want(t)
	}()
	<-done
}

// TestAnsweredBy: the query of packet tests.
func TestAnsweredBy(t *testing.T) {
	_, k := kernel(t, conntrack.Options{})
	flows := []conntracktest.Flow{
		from(dns, "10.244.0.1:4001", "10.244.1.1:5353"), from(dns, "10.244.0.2:4001", "10.244.1.1:5354"),
		from(dns, "10.244.0.1:4002", "10.244.1.2:5353"), from(key("10.244.1.1:4001"), "10.244.0.1:5353"),
		from(dns6, "[fd00:10:244::1]:4001", "[fd00:10:244:1::1]:5353"), from(dns6, "[fd00:10:244::1]:4002", "[fd00:10:244:1::2]:5353"),
	}
	if err := k.Add(flows...); err != nil {
		t.Fatal(err)
	}
	for addr, want := range map[string][]conntracktest.Flow{
		"10.244.1.1": {flows[0], flows[1], flows[3]}, "fd00:10:244:1::1": flows[4:5], "10.244.1.9": nil,
	} {
		got, err := k.AnsweredBy(netip.MustParseAddr(addr))
		slices.SortFunc(want, conntracktest.Flow.Compare)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("AnsweredBy(%s) = %v, %v, want %v", addr, got, err, want)
		}
	}
}

var toolNoise = regexp.MustCompile(`^(\S+ +\d+) \d+|\[\S+\] | use=\d+`)

// TestTextIsTheTools: a flow prints as conntrack -L prints it.
func TestTextIsTheTools(t *testing.T) {
	if _, err := exec.LookPath("conntrack"); err != nil {
		t.Skipf("skipped: %v", err)
	}
	_, k := kernel(t, conntrack.Options{})
	flows := []conntracktest.Flow{
		from(dns, "10.244.0.1:4001", "10.244.1.1:5353"),
		from(dns, "10.244.0.2:4001"),
		from(dns6, "[fd00:10:244::1]:4001", "[fd00:10:244:1::1]:5353"),
	}
	flows[1].Zone = 7
	if err := k.Add(flows...); err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, family := range []string{"ipv4", "ipv6"} {
		out, err := exec.Command("conntrack", "-L", "-f", family).Output()
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(out)) {
			want = append(want, toolNoise.ReplaceAllString(strings.TrimSpace(line), "$1"))
		}
	}
	got := lines(flows)
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("flows (-tool +ours):\n%s", diff)
	}
}
