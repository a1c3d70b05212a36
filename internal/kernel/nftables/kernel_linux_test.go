package nftables_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/zap/zaptest"
	"golang.org/x/sys/unix"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nftables"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nftables/nftablestest"
	"github.com/kube-ipvs/kube-ipvs/internal/testkit/poll"
)

// enterNamespace moves the test's goroutine into a network namespace of its own.
// The thread is never unlocked and so ends with the goroutine.
func enterNamespace(t *testing.T) {
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

// openKernel is a Handle in a fresh namespace, or a skip where the kernel has no
// nf_tables.
func openKernel(t *testing.T) *nftables.Handle {
	t.Helper()
	enterNamespace(t)
	h, err := nftables.New(zaptest.NewLogger(t), nftables.Options{Timeout: poll.Patience})
	if err != nil {
		t.Fatal(err)
	}
	probe := []nftables.Key{{Family: "ip", Name: "probe"}}
	if err := makeTables(t, h, probe, false); err != nil {
		t.Skipf("skipped: no nf_tables here: %v", err)
	}
	if errs := h.Delete(context.Background(), probe); errs != nil {
		t.Fatal(errs[0])
	}
	return h
}

// makeTables gives them an owner that lives as long as the test.
func makeTables(t *testing.T, h *nftables.Handle, keys []nftables.Key, owned bool) error {
	t.Helper()
	owner, err := h.MakeTables(keys, owned)
	if err == nil {
		t.Cleanup(func() { _ = owner.Close() })
	}
	return err
}

func TestKernelContract(t *testing.T) {
	nftablestest.Contract(t, func(t *testing.T) nftablestest.Subject {
		h := openKernel(t)
		s := nftablestest.Subject{
			Client: h,
			Add: func(t *testing.T, keys ...nftables.Key) {
				if err := makeTables(t, h, keys, false); err != nil {
					t.Fatal(err)
				}
			},
			Own: func(t *testing.T, k nftables.Key) {
				if err := makeTables(t, h, []nftables.Key{k}, true); err != nil {
					t.Skipf("skipped: tables of this kernel have no owners: %v", err)
				}
			},
		}
		if _, err := exec.LookPath("nft"); err == nil {
			s.Fill = fill
			s.Readers = map[string]func(*testing.T) string{"nft list tables": func(t *testing.T) string { return nft(t, "", "list", "tables") }}
		}
		return s
	})
}

// nft runs the tool in the namespace of the calling thread.
func nft(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	cmd := exec.Command("nft", args...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("nft %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// fill writes a table as kube-proxy's nftables mode has it, with 100 services.
func fill(t *testing.T, k nftables.Key) {
	t.Helper()
	addr, format := "ipv4_addr", "10.96.0.%d"
	if k.Family == "ip6" {
		addr, format = "ipv6_addr", "fd00::%x"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "table %s {\n set cluster-ips { type %s; }\n map service-ips { type %s . inet_proto . inet_service : verdict; }\n", k, addr, addr)
	fmt.Fprintf(&b, " chain mark-for-masquerade { meta mark set mark or 0x4000; }\n")
	for i := 1; i <= 100; i++ {
		fmt.Fprintf(&b, " chain service-%d { counter; goto mark-for-masquerade; }\n", i)
	}
	fmt.Fprintf(&b, " chain services { %s daddr . meta l4proto . th dport vmap @service-ips; }\n", k.Family)
	fmt.Fprintf(&b, " chain nat-prerouting { type nat hook prerouting priority dstnat; jump services; }\n")
	fmt.Fprintf(&b, " chain filter-input { type filter hook input priority -110; ct state new jump services; }\n}\n")
	for i := 1; i <= 100; i++ {
		ip := fmt.Sprintf(format, i)
		fmt.Fprintf(&b, "add element %s cluster-ips { %s }\nadd element %s service-ips { %s . tcp . 80 : goto service-%d }\n", k, ip, k, ip, i)
	}
	nft(t, b.String(), "-f", "-")
}

// TestKernelWithoutPermission: the error has the remedy. A process of
// its own user namespace has no rights in the network namespace it is in.
func TestKernelWithoutPermission(t *testing.T) {
	h := openKernel(t)
	defer h.Close()
	if err := makeTables(t, h, []nftables.Key{kubeProxy}, false); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestWithoutPermission$", "-test.v")
	cmd.Env = append(os.Environ(), unprivileged+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
	}
	out, err := cmd.CombinedOutput()
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSPC) {
		t.Skipf("skipped: no permission to make a user namespace: %v", err)
	}
	if err != nil || !strings.Contains(string(out), "--- PASS: TestWithoutPermission") {
		t.Fatalf("%v:\n%s", err, out)
	}
	if tables, err := h.List(context.Background()); err != nil || len(tables) != 1 {
		t.Errorf("tables %v, %v; want %s", tables, err, kubeProxy)
	}
}

var kubeProxy = nftables.Key{Family: "ip", Name: "kube-proxy"}

// unprivileged is the variable that tells the process of TestKernelWithoutPermission.
const unprivileged = "NFTABLES_TEST_UNPRIVILEGED"

func TestWithoutPermission(t *testing.T) {
	if os.Getenv(unprivileged) == "" {
		t.Skip("skipped: a part of TestKernelWithoutPermission")
	}
	h, err := nftables.New(zaptest.NewLogger(t), nftables.Options{Timeout: poll.Patience})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	_, listed := h.List(context.Background())
	deleted := errors.Join(h.Delete(context.Background(), []nftables.Key{kubeProxy})...)
	watched := h.Watch(context.Background(), func([]nftables.Writer) { t.Error("told of something") })
	if !errors.Is(watched, fs.ErrPermission) {
		t.Errorf("Watch: %v, want %v", watched, fs.ErrPermission)
	}
	for start, err := range map[string]error{"list nftables tables: ": listed, "delete table ip kube-proxy: ": deleted} {
		want := start + "operation not permitted; run with the capability CAP_NET_ADMIN"
		if !errors.Is(err, fs.ErrPermission) || err.Error() != want {
			t.Errorf("error %v\nwant %s", err, want)
		}
	}
}

// TestKernelFromAnotherThread: the namespace is that of New.
func TestKernelFromAnotherThread(t *testing.T) {
	h := openKernel(t)
	defer h.Close()
	key := nftables.Key{Family: "ip", Name: fmt.Sprintf("kube-ipvs-test-%d", os.Getpid())}
	if err := makeTables(t, h, []nftables.Key{key}, false); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { // another goroutine: another thread, in the machine's own namespace
		defer close(done)
		tables, err := h.List(context.Background())
		if _, there := tables[key]; err != nil || !there || len(tables) != 1 {
			t.Errorf("tables %v, %v; want %s", tables, err, key)
		}
		if errs := h.Delete(context.Background(), []nftables.Key{key}); errs != nil {
			t.Error(errs[0])
		}
	}()
	<-done
	if tables, err := h.List(context.Background()); err != nil || len(tables) != 0 {
		t.Errorf("tables %v, %v; want none", tables, err)
	}
}

// TestTransactionsAreShort: with any contents, a listener gets one short message, and
// so has room for the next.
func TestTransactionsAreShort(t *testing.T) {
	h := openKernel(t)
	defer h.Close()
	ear, err := nftables.OpenListener()
	if err != nil {
		t.Fatal(err)
	}
	defer ear.Close()
	var many []nftables.Key
	for i := range 700 {
		many = append(many, nftables.Key{Family: "ip", Name: fmt.Sprintf("%03d-%s", i, strings.Repeat("n", 100))})
	}
	defer time.AfterFunc(poll.Patience, ear.Interrupt).Stop()
	for range 2 {
		if err := makeTables(t, h, many, false); err != nil {
			t.Fatal(err)
		}
		if errs := h.Delete(t.Context(), many); errs != nil {
			t.Fatal(errs[0])
		}
		for _, what := range []string{"tables that came", "tables that went"} {
			b, err := ear.Receive()
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			if kind := binary.NativeEndian.Uint16(b[4:]); kind != 10<<8|15 || len(b) > 100 {
				t.Errorf("%s: message %#x in %d bytes, want one new generation", what, kind, len(b))
			}
		}
	}
}

// TestSilentSocket: a socket that gets no answer ends with its interruption.
func TestSilentSocket(t *testing.T) {
	enterNamespace(t)
	closed := make(chan struct{})
	h := nftables.NewOver(zaptest.NewLogger(t), nftables.Options{Timeout: 50 * time.Millisecond}, func() (nftables.Wire, error) {
		w, err := nftables.OpenSocket()
		return deaf{w, closed}, err
	})
	if _, err := h.List(context.Background()); !errors.Is(err, nftables.ErrBusy) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v, want %v", err, nftables.ErrBusy)
	}
	<-closed
}

// deaf swallows what is sent.
type deaf struct {
	nftables.Wire
	closed chan struct{}
}

func (d deaf) Send([]byte) error { return nil }
func (d deaf) Close() error      { close(d.closed); return d.Wire.Close() }

// Rules of iptables-nft and of nft have one generation; those who look raise none.
func TestGenerationFollowsTools(t *testing.T) {
	h := openKernel(t)
	generation := func() uint32 {
		t.Helper()
		n, err := h.Generation(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	iptables := func(args ...string) {
		t.Helper()
		if out, err := exec.Command("iptables-nft", args...).CombinedOutput(); err != nil {
			t.Skipf("skipped: iptables-nft %s: %v: %s", strings.Join(args, " "), err, out)
		}
	}
	iptables("-t", "nat", "-A", "OUTPUT", "-j", "RETURN")
	before := generation()
	iptables("-t", "nat", "-S")
	if got := generation(); got != before {
		t.Errorf("a listing raised %d to %d", before, got)
	}
	for _, args := range [][]string{
		{"-t", "nat", "-A", "OUTPUT", "-p", "tcp", "-j", "RETURN"},
		{"-t", "nat", "-D", "OUTPUT", "-p", "tcp", "-j", "RETURN"},
		{"-t", "nat", "-F"},
	} {
		before = generation()
		iptables(args...)
		if got := generation(); got == before {
			t.Errorf("iptables-nft %v left it at %d", args, got)
		}
	}
}

// The jumps that iptables makes are verdicts of rules, and are seen without its tools.
func TestLeads(t *testing.T) {
	h := openKernel(t)
	defer h.Close()
	if _, err := exec.LookPath("iptables-nft"); err != nil {
		t.Skipf("skipped: %v", err)
	}
	nat := nftables.Key{Family: "ip", Name: "nat"}
	leads := func(want bool, chain, target string) {
		t.Helper()
		if got, err := h.Leads(t.Context(), nat, chain, target); got != want || err != nil {
			t.Errorf("%s leads to %s: %t, %v; want %t", chain, target, got, err, want)
		}
	}
	run := func(args ...string) {
		t.Helper()
		if out, err := exec.Command("iptables-nft", append([]string{"-t", "nat"}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("iptables-nft %v: %v\n%s", args, err, out)
		}
	}
	leads(false, "PREROUTING", "KUBE-SERVICES") // no such table
	run("-N", "KUBE-SERVICES")
	run("-N", "KUBE-SERVICES-MORE")
	run("-A", "PREROUTING", "-m", "comment", "--comment", "KUBE-SERVICES", "-j", "KUBE-SERVICES-MORE")
	leads(false, "PREROUTING", "KUBE-SERVICES")
	run("-A", "PREROUTING", "-m", "comment", "--comment", "portals", "-j", "KUBE-SERVICES")
	leads(true, "PREROUTING", "KUBE-SERVICES")
	leads(false, "OUTPUT", "KUBE-SERVICES")
	leads(false, "UNKNOWN", "KUBE-SERVICES")
	run("-F")
	leads(false, "PREROUTING", "KUBE-SERVICES")
}

// A kernel with nft_compat has the match comment, and no kernel has the other one.
func TestFindMatch(t *testing.T) {
	h := openKernel(t)
	for _, family := range []string{"ip", "ip6"} {
		for _, name := range []string{"comment", "no-such-match"} {
			err := h.FindMatch(t.Context(), family, name)
			t.Logf("match %s, family %s: %v", name, family, err)
			compat := err == nil || !strings.Contains(err.Error(), "nft_compat")
			switch {
			case err != nil && !errors.Is(err, nftables.ErrUnsupported):
				t.Errorf("match %s, family %s: %v", name, family, err)
			case compat && (err == nil) != (name == "comment"):
				t.Errorf("match %s, family %s: %v", name, family, err)
			}
		}
	}
	if err := h.FindMatch(t.Context(), "inet", "comment"); !errors.Is(err, nftables.ErrInvalid) {
		t.Errorf("family inet: %v, want %v", err, nftables.ErrInvalid)
	}
}
