package vm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) {
	// The race detector sleeps a second at each exit, and these tests re-execute themselves often.
	_ = os.Setenv("GORACE", "atexit_sleep_ms=0")
	os.Exit(m.Run())
}

// needVM skips unless a boot was asked for.
func needVM(t *testing.T) {
	t.Helper()
	if os.Getenv("KUBE_IPVS_VM") != "1" {
		t.Skip("boots a kernel under QEMU (about 10 s each): set KUBE_IPVS_VM=1 to run it, e2e/install.sh vm installs what it needs")
	}
}

// logWriter sends progress to the test's log.
type logWriter struct{ t *testing.T }

func (w logWriter) Write(p []byte) (int, error) {
	w.t.Log(strings.TrimSpace(string(p)))
	return len(p), nil
}

// ordinaryUser is the user without rights that every distribution has.
func ordinaryUser() *syscall.Credential { return &syscall.Credential{Uid: 65534, Gid: 65534} }

// answeringWriter keeps the output and does something once, when a line shows up in it.
type answeringWriter struct {
	text   bytes.Buffer
	line   string
	answer func()
	once   sync.Once
}

func (w *answeringWriter) Write(p []byte) (int, error) {
	n, err := w.text.Write(p)
	if strings.Contains(w.text.String(), w.line) {
		w.once.Do(w.answer)
	}
	return n, err
}

func TestVMOffersWhatTestsNeed(t *testing.T) {
	needVM(t)
	for flavour, version := range map[string]string{"nft": "(nf_tables)", "legacy": "(legacy)"} {
		t.Run(flavour, func(t *testing.T) { testGuestScript(t, flavour, version) })
	}
}

func testGuestScript(t *testing.T, flavour, version string) {
	out := t.TempDir()
	output := &answeringWriter{line: "ping\n", answer: func() { writeFiles(t, out, map[string]string{"pong": ""}) }}
	status, err := Run(t.Context(), Options{
		Command:  []string{"bash", "/src/guest.sh", flavour, version},
		IPTables: flavour,
		Shares:   []Share{{Host: mustAbs(t, "testdata"), Guest: "/src"}, {Host: out, Guest: "/run/out", Writable: true}},
		Timeout:  10 * time.Minute, Stdout: output, Log: logWriter{t},
	})
	if err != nil {
		t.Fatalf("%v\n%s", err, output.text.String())
	}
	if status != 7 {
		t.Errorf("status %d, want 7", status)
	}
	if text, err := os.ReadFile(filepath.Join(out, "result")); err != nil || string(text) != "result\n" {
		t.Errorf("the writable share holds %q, %v", text, err)
	}
	if checks := reportChecks(t, output.text.String()); checks < 60 {
		t.Errorf("only %d checks reported:\n%s", checks, output.text.String())
	}
}

// reportChecks turns "ok" and "not ok" lines into results and counts them.
func reportChecks(t *testing.T, text string) int {
	t.Helper()
	checks := 0
	for line := range strings.Lines(text) {
		name, ok := strings.CutPrefix(strings.TrimSpace(line), "ok ")
		failure, failed := strings.CutPrefix(strings.TrimSpace(line), "not ok ")
		switch {
		case failed:
			t.Error(failure)
		case !ok || name == "":
			continue
		}
		checks++
	}
	return checks
}

// TestVMGuest carries this package's own tests into the guest, as a static program in RAM.
func TestVMGuest(t *testing.T) {
	needVM(t)
	binary := filepath.Join(t.TempDir(), "vm.test")
	build(t, "test", "-c", "-o", binary, ".")
	var out bytes.Buffer
	status, err := Run(t.Context(), Options{
		Command: []string{"/run/vm.test", "-test.v", "-test.run=^TestGuest"},
		Env:     []string{"HOST_PORT=" + strconv.Itoa(serveFromHost(t))},
		Copies:  []Copy{{Host: binary, Guest: "/run/vm.test"}},
		Stdout:  &out, Log: logWriter{t},
	})
	if err != nil || status != 0 || strings.Contains(out.String(), "SKIP") || !strings.Contains(out.String(), "--- PASS: TestGuest") {
		t.Errorf("status %d, %v\n%s", status, err, out.String())
	}
}

// build runs the go tool for a static program, the only kind that runs in any guest.
func build(t *testing.T, args ...string) {
	t.Helper()
	cmd := exec.Command("go", args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// serveFromHost answers connections on the host's loopback until the test ends.
func serveFromHost(t *testing.T) (port int) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write([]byte("from the host"))
			conn.Close()
		}
	}()
	return listener.Addr().(*net.TCPAddr).Port
}

func mustAbs(t *testing.T, path string) string {
	t.Helper()
	abs, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return abs
}

func TestVMThatDoesNotBootSaysWhy(t *testing.T) {
	needVM(t)
	status, err := Run(t.Context(), Options{Command: []string{"true"}, Dir: "/no/such/place", Accel: accelTCG, Log: logWriter{t}})
	if status != StatusBroken || !errors.Is(err, errNoBoot) || !strings.Contains(err.Error(), "init: no directory /no/such/place") {
		t.Errorf("status %d, %v, want %d and the end of the console", status, err, StatusBroken)
	}
}

func TestVMTimeoutLeavesNoProcess(t *testing.T) {
	needVM(t)
	marker := fmt.Sprintf("timeout-%d", os.Getpid())
	share := Share{Host: t.TempDir(), Guest: "/" + marker}
	share.Host = filepath.Join(share.Host, marker) // shows up on QEMU's command line
	if err := os.Mkdir(share.Host, 0o755); err != nil {
		t.Fatal(err)
	}
	before := cacheNames(t)
	status, err := Run(t.Context(), Options{
		Command: []string{"sleep", "1000"}, Shares: []Share{share}, Timeout: 2 * time.Second, Accel: accelTCG, Log: logWriter{t},
	})
	if status != StatusBroken || err == nil || !strings.Contains(err.Error(), "time-out of 2s") {
		t.Errorf("status %d, %v, want %d and the time-out", status, err, StatusBroken)
	}
	awaitNone(t, func() []int { return processesWith(marker) })
	if after := cacheNames(t); after != before {
		t.Errorf("the cache held %s before and %s after", before, after)
	}
}

func cacheNames(t *testing.T) string {
	t.Helper()
	dir, err := CacheDir()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(names(t, dir), " ")
}

// TestVMEndsWithItsRunner ends the runner in the ways a CI system does, the last one giving it no chance to clean up.
func TestVMEndsWithItsRunner(t *testing.T) {
	needVM(t)
	vmrun := filepath.Join(t.TempDir(), "vmrun")
	build(t, "build", "-o", vmrun, "./vmrun")
	for _, sig := range []syscall.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGKILL} {
		t.Run(unix.SignalName(sig), func(t *testing.T) { testEndsOn(t, vmrun, sig) })
	}
}

func testEndsOn(t *testing.T, vmrun string, sig syscall.Signal) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, vmrun, "--", "bash", "-c", "echo running; sleep 1000")
	cmd.Stderr = logWriter{t}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	first := make([]byte, len("running\n"))
	if _, err := out.Read(first); err != nil || string(first) != "running\n" {
		t.Fatalf("first output %q, %v", first, err)
	}
	emulators := childrenOf(cmd.Process.Pid)
	if len(emulators) == 0 {
		t.Fatal("no QEMU below the runner")
	}
	if err := cmd.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if want := StatusBroken; sig != unix.SIGKILL && cmd.ProcessState.ExitCode() != want {
		t.Errorf("status %d, want %d", cmd.ProcessState.ExitCode(), want)
	}
	awaitNone(t, func() []int { return alive(emulators) })
}

// childrenOf lists the processes started by one.
func childrenOf(parent int) []int {
	var found []int
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", parent))
	for _, file := range files {
		text, _ := os.ReadFile(file)
		for field := range strings.FieldsSeq(string(text)) {
			if pid, err := strconv.Atoi(field); err == nil {
				found = append(found, pid)
			}
		}
	}
	return found
}

// alive keeps the processes that still run; one that is dead and not yet collected counts as gone.
func alive(pids []int) []int {
	var left []int
	for _, pid := range pids {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err == nil && !strings.Contains(string(text), ") Z ") {
			left = append(left, pid)
		}
	}
	return left
}
