package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// errRunning says that another process has the run directory.
var errRunning = errors.New("another kube-ipvs is running")

// lockWait is how long a lock is waited for. Whoever held it may have been killed a moment ago while it began a process: the
// kernel keeps the lock until that one has become another program, which takes a busy machine a while.
const lockWait = 2 * time.Second

// lockRunDir makes this process the only one that writes to the kernel for a run
// directory, until the file is closed or the process ends, however it ends. The
// file stays when its holder goes: to remove it would let two processes hold two
// files of one name.
func lockRunDir(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make run directory: %w%s", err, runDirFix)
	}
	path := filepath.Join(dir, "agent.lock")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock: %w%s", err, runDirFix)
	}
	if err := flockSoon(f); err != nil {
		defer f.Close()
		return nil, fmt.Errorf("lock %s: %w%s", path, err, holder(f))
	}
	_ = sign(f) // on a full disk the lock is held by nobody with a name
	return f, nil
}

// runDirFix follows why a run directory cannot be used.
const runDirFix = "\n  remedy: make the run directory writable, or choose another by --run-dir"

// flockSoon takes the lock as soon as it is free, or fails with errRunning when it was not within lockWait.
func flockSoon(f *os.File) error {
	deadline := time.Now().Add(lockWait)
	for {
		err := flock(f)
		if !errors.Is(err, errRunning) || time.Now().After(deadline) {
			return err
		}
		time.Sleep(lockWait / 100)
	}
}

// sign leaves the number of this process, for the message of whoever comes second.
func sign(f *os.File) error {
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err := f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return err
}

// holder names who signed; one that has not come to it yet has no name.
func holder(f *os.File) string {
	text := make([]byte, 20)
	n, _ := f.ReadAt(text, 0)
	if pid, err := strconv.Atoi(strings.TrimSpace(string(text[:n]))); err == nil {
		return fmt.Sprintf(" (process %d)", pid)
	}
	return ""
}
