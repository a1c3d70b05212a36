package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestOneAgentARunDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	first, err := lockRunDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(*testing.T) { _, err = lockRunDir(dir) }) // waits for lockWait
	if want := fmt.Sprintf("(process %d)", os.Getpid()); !errors.Is(err, errRunning) || !strings.Contains(err.Error(), want) {
		t.Errorf("second lock: error %v, want %v %s", err, errRunning, want)
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

// What a crash leaves is a file without a lock: it stops nobody, and neither does
// what stands in it.
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

// A full disk is no reason not to start: the lock is held all the same, by nobody with a name.
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
	if !errors.Is(err, errRunning) {
		t.Errorf("second lock: error %v, want %v", err, errRunning)
	}
}

// A run directory that cannot be used is named, with what to do.
func TestRunDirectoryThatCannotBeUsed(t *testing.T) {
	file := filepath.Join(directory(t, map[string]string{"file": ""}), "file")
	if _, err := lockRunDir(filepath.Join(file, "run")); err == nil || !strings.Contains(err.Error(), file) || !strings.Contains(err.Error(), "remedy: ") {
		t.Errorf("error %v, want the directory and a remedy", err)
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
			synctest.Test(t, func(*testing.T) { _, err = try(tt.args...) }) // waits for lockWait
			if !errors.Is(err, errRunning) || !strings.HasPrefix(err.Error(), tt.want) {
				t.Errorf("error %v, want %q with %v", err, tt.want, errRunning)
			}
		})
	}
}
