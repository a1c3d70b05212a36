package daemon

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/version"
)

// ErrRunning reports that another process writes to the kernel of this network namespace, or to the run directory.
var ErrRunning = errors.New("another kube-ipvs is running")

// lockWait bounds the wait for a lock. A process that was killed while it started a child process keeps its locks until
// that child has executed its program, which takes a busy machine a while.
const lockWait = 2 * time.Second

// A lock makes this process the only one that writes: name to the kernel of the network namespace, file to the run
// directory, which two namespaces may share. The kernel frees both when the process ends, however it ends.
type lock struct {
	file *os.File
	name *nameServer // nil where the name could not be had, see lockNode
}

// lockNode takes both locks for a verb, or fails with ErrRunning and names the owner. A process without root's rights can
// bind the name, too: it must not keep a node without Services, so the agent warns of it and relies on the file.
func lockNode(log *zap.Logger, verb, dir string) (*lock, error) {
	file, err := lockRunDir(dir)
	if errors.Is(err, ErrRunning) {
		if named := askOwner(); errors.Is(named, ErrRunning) { // most likely it is the same process
			return nil, named
		}
	}
	if err != nil {
		return nil, err
	}
	name, err := lockNamespace(owner{Verb: verb, PID: os.Getpid(), Version: version.String(), RunDir: dir})
	switch {
	case errors.Is(err, ErrRunning):
		_ = file.Close()
		return nil, err
	case err != nil:
		log.Warn("cannot lock the network namespace, only the lock of the run directory keeps a second kube-ipvs out",
			zap.String("name", LockName), zap.Error(err))
	}
	return &lock{file, name}, nil
}

// Close frees both locks.
func (l *lock) Close() {
	if l.name != nil {
		l.name.Close()
	}
	_ = l.file.Close()
}

// lockNamespace binds the name as soon as it is free. It fails with ErrRunning if root or the user
// of this process holds the name for longer than lockWait. It fails with another error if any other
// process holds the name, or the kernel refuses it.
func lockNamespace(o owner) (*nameServer, error) {
	deadline := time.Now().Add(lockWait)
	for {
		l, err := net.Listen("unix", LockName)
		if err == nil {
			return serveName(l, o), nil
		}
		if !taken(err) {
			return nil, err
		}
		if time.Now().After(deadline) {
			return nil, askOwner()
		}
		time.Sleep(lockWait / 100)
	}
}

// lockRunDir makes this process the only one that writes to a run directory, until the
// file is closed or the process ends, however it ends. The file stays when its owner
// ends: to remove it would let two processes lock two files of one name.
func lockRunDir(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("create run directory: %w%s", err, runDirFix)
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
	_ = sign(f) // on a full disk the lock is held without a name
	return f, nil
}

// runDirFix follows why a run directory cannot be used.
const runDirFix = "\n  remedy: make the run directory writable, or choose another by --run-dir"

// flockSoon takes the lock as soon as it is free, or fails with ErrRunning when it was not within lockWait.
func flockSoon(f *os.File) error {
	deadline := time.Now().Add(lockWait)
	for {
		err := flock(f)
		if !errors.Is(err, ErrRunning) || time.Now().After(deadline) {
			return err
		}
		time.Sleep(lockWait / 100)
	}
}

// sign writes the number of this process, for the message of a second process.
func sign(f *os.File) error {
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err := f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return err
}

// holder names the process that signed the file; between lock and signature there is no name.
func holder(f *os.File) string {
	text := make([]byte, 20)
	n, _ := f.ReadAt(text, 0)
	if pid, err := strconv.Atoi(strings.TrimSpace(string(text[:n]))); err == nil {
		return fmt.Sprintf(" (process %d)", pid)
	}
	return ""
}
