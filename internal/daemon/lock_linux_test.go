package daemon

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"golang.org/x/sys/unix"

	"github.com/kube-ipvs/kube-ipvs/internal/version"
)

func TestOneAgentARunDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	first, err := lockRunDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(*testing.T) { _, err = lockRunDir(dir) }) // waits for lockWait
	if want := fmt.Sprintf("(process %d)", os.Getpid()); !errors.Is(err, ErrRunning) || !strings.Contains(err.Error(), want) {
		t.Errorf("second lock: error %v, want %v %s", err, ErrRunning, want)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := lockRunDir(dir)
	if err != nil {
		t.Fatalf("lock after the first was closed: %v", err)
	}
	_ = again.Close()
}

// A process that was begun by an agent holds its lock until it is another program, and may outlive the agent so long.
func TestLockOfAnAgentThatWasKilled(t *testing.T) {
	dir := t.TempDir()
	first, err := lockRunDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		tried := make(chan error)
		go func() {
			again, err := lockRunDir(dir)
			if err == nil {
				err = again.Close()
			}
			tried <- err
		}()
		select {
		case err := <-tried:
			t.Fatalf("lock beside the first: error %v, want to wait", err)
		case <-time.After(lockWait - lockWait/100): // the bubble's clock
		}
		if err := first.Close(); err != nil {
			t.Fatal(err)
		}
		if err := <-tried; err != nil {
			t.Errorf("lock after the first was closed: %v", err)
		}
	})
}

// A crash leaves a file without a lock. Neither the file nor its content prevents a start.
func TestLockFileOfACrash(t *testing.T) {
	for name, text := range map[string]string{"empty": "", "signed": "4194304000\n", "garbage": strings.Repeat("x", 1000)} {
		t.Run(name, func(t *testing.T) {
			dir := directory(t, map[string]string{"agent.lock": text})
			f, err := lockRunDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			got, err := os.ReadFile(filepath.Join(dir, "agent.lock"))
			if want := fmt.Sprintf("%d\n", os.Getpid()); err != nil || string(got) != want {
				t.Errorf("lock file says %q (error %v), want %q", got, err, want)
			}
		})
	}
}

// A full disk does not prevent a start: the lock is held, without the name of its holder.
func TestLockOnAFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := os.Symlink("/dev/full", filepath.Join(dir, "agent.lock")); err != nil {
		t.Fatal(err)
	}
	f, err := lockRunDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	synctest.Test(t, func(*testing.T) { _, err = lockRunDir(dir) }) // waits for lockWait
	if !errors.Is(err, ErrRunning) {
		t.Errorf("second lock: error %v, want %v", err, ErrRunning)
	}
}

// A run directory that cannot be used is named, with what to do.
func TestRunDirectoryThatCannotBeUsed(t *testing.T) {
	file := filepath.Join(directory(t, map[string]string{"file": ""}), "file")
	if _, err := lockRunDir(filepath.Join(file, "run")); err == nil || !strings.Contains(err.Error(), file) || !strings.Contains(err.Error(), "remedy: ") {
		t.Errorf("error %v, want the directory and a remedy", err)
	}
}

// TestOneAgentANetworkNamespace: with any run directory, a second process refuses and names the first.
func TestOneAgentANetworkNamespace(t *testing.T) {
	first, err := lockNode(zap.NewNop(), "run", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	source := directory(t, map[string]string{"web.yaml": manifest})
	for name, tt := range map[string]struct {
		args []string
		want string
	}{
		"agent":     {[]string{"--source-dir", source, "--run-dir", t.TempDir()}, "cannot start: "},
		"init only": {[]string{"--init-only", "--source-dir", source, "--run-dir", t.TempDir()}, "cannot start: "},
		"cleanup":   {[]string{"cleanup", "--run-dir", t.TempDir()}, "stop the agent first: "},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(*testing.T) { err = runVerb(tt.args...) }) // waits for lockWait
			want := fmt.Sprintf("%skube-ipvs run (pid %d, version %s, --run-dir %s) runs in this network namespace", tt.want, os.Getpid(), version.String(), filepath.Dir(first.file.Name()))
			if !errors.Is(err, ErrRunning) || err.Error() != want {
				t.Errorf("error %v, want %s", err, want)
			}
		})
	}
	first.Close()
	again, err := lockNode(zap.NewNop(), "cleanup", t.TempDir())
	if err != nil {
		t.Fatalf("after the first has ended: %v", err)
	}
	again.Close()
}

// TestAgentsOfTwoNetworkNamespaces: they do not meet, unless they share a run directory.
func TestAgentsOfTwoNetworkNamespaces(t *testing.T) {
	shared := t.TempDir()
	first, err := lockNode(zap.NewNop(), "run", shared)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	runtime.LockOSThread() // and never unlocked: the thread ends with the test
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Skipf("needs a network namespace of its own: %v", err)
	}
	second, err := lockNode(zap.NewNop(), "run", t.TempDir())
	if err != nil {
		t.Fatalf("in a namespace of its own: %v", err)
	}
	second.Close()
	if l, err := lockNode(zap.NewNop(), "run", shared); !errors.Is(err, ErrRunning) || !strings.Contains(err.Error(), shared) {
		t.Errorf("with the run directory of the first: lock %v, error %v", l, err)
	}
}

// TestNameOfAStranger: a process without root's rights cannot keep the agent from a node; a silent one that has them can.
func TestNameOfAStranger(t *testing.T) {
	for _, tt := range []struct {
		name string
		user int
		says string
		want string // of an error, empty where the agent goes on
		warn string
	}{
		{"a user", 65534, `{"verb":"run","pid":1}`, "", fmt.Sprintf("it runs as user 65534 (pid %d)", os.Getpid())},
		{"root, silent", 0, "", fmt.Sprintf("an unidentified process (pid %d) runs in this network namespace", os.Getpid()), ""},
		{"root, garbage", 0, "\x1b[2J", "an unidentified process", ""},
		{"root, control characters", 0, `{"verb":"run\u001b[2J","runDir":"/x\n"}`, `kube-ipvs run\u001b[2J (pid `, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			defer bindAs(t, tt.user, tt.says)()
			core, logs := observer.New(zap.WarnLevel)
			var l *lock
			var err error
			synctest.Test(t, func(*testing.T) { // waits for lockWait
				if l, err = lockNode(zap.New(core), "run", t.TempDir()); err == nil {
					l.Close()
				}
			})
			if tt.want != "" && (!errors.Is(err, ErrRunning) || !strings.Contains(err.Error(), tt.want)) || tt.want == "" && err != nil {
				t.Errorf("error %v, want %q", err, tt.want)
			}
			if all := logs.All(); tt.warn != "" && (len(all) != 1 || !strings.Contains(fmt.Sprint(all[0].ContextMap()["error"]), tt.warn)) || tt.warn == "" && len(all) > 0 {
				t.Errorf("warnings %v, want one with %q", all, tt.warn)
			}
		})
	}
}

// bindAs takes the name as a process of some user does, until the function returned is called.
func bindAs(t *testing.T, user int, says string) (free func()) {
	t.Helper()
	bound := make(chan net.Listener)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with its user
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(user), uintptr(user), uintptr(user)); errno != 0 {
			t.Errorf("become user %d: %v", user, errno)
		}
		l, err := net.Listen("unix", LockName)
		if err != nil {
			t.Error(err)
		}
		bound <- l
	}()
	l := <-bound
	if l == nil {
		t.FailNow()
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write([]byte(says))
			_ = conn.Close()
		}
	}()
	return func() { _ = l.Close(); <-done }
}

// TestCleanupNeedsRoot: its error names the missing rights, and not that an agent runs, nor that another run directory helps.
func TestCleanupNeedsRoot(t *testing.T) {
	ended := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with its user
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, 65534, 65534, 65534); errno != 0 {
			ended <- errno
			return
		}
		err := runVerb("cleanup", "--run-dir", "/proc/1/none")
		ended <- err
	}()
	err := <-ended
	if err == nil || !strings.HasPrefix(err.Error(), "cleanup needs root") || strings.Contains(err.Error(), "run-dir") || strings.Contains(err.Error(), "stop the agent") {
		t.Errorf("error %v, want one that asks for root alone", err)
	}
}

// Neither verb touches the kernel while another process has the run directory.
func TestVerbsThatWriteWaitForNobody(t *testing.T) {
	run, source := t.TempDir(), directory(t, map[string]string{"web.yaml": manifest})
	f, err := lockRunDir(run)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for name, tt := range map[string]struct {
		args []string
		want string
	}{
		"agent":   {[]string{"--source-dir", source, "--run-dir", run}, "cannot start: "},
		"cleanup": {[]string{"cleanup", "--run-dir", run}, "stop the agent first: "},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(*testing.T) { err = runVerb(tt.args...) }) // waits for lockWait
			if !errors.Is(err, ErrRunning) || !strings.HasPrefix(err.Error(), tt.want) {
				t.Errorf("error %v, want %q with %v", err, tt.want, ErrRunning)
			}
		})
	}
}
