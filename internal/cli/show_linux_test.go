package cli

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/kube-ipvs/kube-ipvs/ipset"
)

// The content of this kernel is shown without an agent, and reading changes nothing.
func TestShowKernelOnWhateverKernelThisIs(t *testing.T) {
	runtime.LockOSThread() // and never unlocked: the thread ends with the test
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Skipf("needs a network namespace of its own: %v", err)
	}
	if _, err := exec.LookPath("iptables-nft"); err != nil {
		t.Skipf("needs the tools of iptables: %v", err)
	}
	sets, err := ipset.New(ipset.Options{})
	if err == nil {
		err = sets.Create(t.Context(), ipset.Set{Name: "KUBE-CLUSTER-IP", Type: ipset.HashIPPort, Family: ipset.IPv4})
	}
	if err != nil {
		t.Skipf("needs sets: %v", err)
	}
	defer sets.Close()
	if err := sets.Create(t.Context(), ipset.Set{Name: "STRANGER", Type: ipset.HashIP, Family: ipset.IPv6}); err != nil {
		t.Fatal(err)
	}
	if err := sets.Add(t.Context(), "KUBE-CLUSTER-IP", ipset.IPPort(netip.MustParseAddr("10.96.0.10"), ipset.TCP, 80)); err != nil {
		t.Fatal(err)
	}
	tool(t, "-t", "nat", "-N", "KUBE-SERVICES")
	tool(t, "-t", "nat", "-A", "KUBE-SERVICES", "-p", "tcp", "-j", "RETURN")
	tool(t, "-t", "nat", "-A", "OUTPUT", "-j", "KUBE-SERVICES")
	tool(t, "-t", "nat", "-N", "STRANGER")
	before := tool(t, "-t", "nat", "-S")

	show := func(args ...string) string {
		return execute(t, slices.Concat([]string{"show", "kernel"}, args, []string{"--run-dir", t.TempDir(), "--iptables-backend", "nft", "--no-headers"})...)
	}
	for want, got := range map[string]string{
		"KUBE-CLUSTER-IP  hash:ip,port  1  kube-ipvs\nSTRANGER         hash:ip       0  foreign\n":                         show("sets"),
		"KUBE-CLUSTER-IP  10.96.0.10,tcp:80  kube-ipvs\n":                                                                  show("sets", "KUBE-CLUSTER-IP"),
		"ip  nat  OUTPUT         -  kube-ipvs  -j KUBE-SERVICES\nip  nat  KUBE-SERVICES  1  kube-ipvs  -p tcp -j RETURN\n": show("rules"),
	} {
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	if _, err := try("show", "kernel", "rules", "STRANGER", "--run-dir", t.TempDir(), "--iptables-backend", "nft"); err == nil || !strings.Contains(err.Error(), "no chain STRANGER of kube-ipvs") {
		t.Errorf("a chain of others: error %v", err)
	}
	if got := show("addresses", "-o", "json"); conforms(t, "kernel-addresses", got) != 0 {
		t.Errorf("addresses of a new namespace:\n%s", got)
	}
	if diff := cmp.Diff(before, tool(t, "-t", "nat", "-S")); diff != "" {
		t.Errorf("rules were changed by looking at them (-before +after):\n%s", diff)
	}
	if all, err := sets.ListSets(t.Context()); err != nil || len(all) != 2 {
		t.Errorf("sets %v, error %v, want the two that were there", all, err)
	}
}

// pseudoTerminal returns the side of a terminal that a program has, and reads what comes out of it.
func pseudoTerminal(t *testing.T) (program *os.File, read func() string) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("needs a terminal: %v", err)
	}
	t.Cleanup(func() { _ = master.Close() })
	fd := int(master.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	program, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("needs a terminal: %v", err)
	}
	t.Cleanup(func() { _ = program.Close() })
	return program, func() string {
		b := make([]byte, 4096)
		n, err := master.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		return string(b[:n])
	}
}

// A terminal is redrawn in place, with colours unless the user wants none; nothing else is.
func TestTerminal(t *testing.T) {
	program, read := pseudoTerminal(t)
	t.Setenv("TERM", "xterm")
	t.Setenv("NO_COLOR", "")
	var notes strings.Builder
	s := newScreen(program, &notes)
	if !s.page().colour {
		t.Error("no colours on a terminal")
	}
	text, err := s.compose("table", func(p page) error {
		fmt.Fprint(p.out, "row")
		fmt.Fprint(p.notes, ", note")
		return nil
	})
	if err != nil || s.put(text) != nil {
		t.Fatal(err)
	}
	if got := read(); got != erase+"row, note" || notes.Len() > 0 {
		t.Errorf("the terminal shows %q, notes %q", got, &notes)
	}
	t.Setenv("NO_COLOR", "1")
	if newScreen(program, &notes).page().colour {
		t.Error("colours although NO_COLOR is set")
	}
	t.Setenv("NO_COLOR", "")
	t.Setenv("TERM", "dumb")
	if newScreen(program, &notes).page().colour {
		t.Error("colours on a dumb terminal")
	}
	file, err := os.Create(t.TempDir() + "/out")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	t.Setenv("TERM", "xterm")
	if s := newScreen(file, &notes); s.terminal || s.colour {
		t.Errorf("a file is taken for a terminal: %+v", s)
	}
}
