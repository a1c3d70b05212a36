package tune_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"
	"go.uber.org/zap/zaptest/observer"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/tune"
)

// node is a directory that looks like the root of a node.
type node struct {
	root, run string
}

func newNode(t *testing.T) node {
	t.Helper()
	n := node{root: t.TempDir(), run: filepath.Join(t.TempDir(), "run")}
	n.file(t, "proc/sys/kernel/osrelease", "6.1.0-18-amd64")
	return n
}

// tuner returns what a fresh process on the node would have.
func (n node) tuner(t *testing.T) *tune.Tuner {
	t.Helper()
	return tune.New(zaptest.NewLogger(t), tune.Options{Root: n.root, RunDir: n.run, Modprobe: n.path("sbin/modprobe")})
}

// observed returns a tuner and what it has logged, from Info on.
func (n node) observed() (*tune.Tuner, func() []observer.LoggedEntry) {
	core, logs := observer.New(zap.InfoLevel)
	tuner := tune.New(zap.New(core), tune.Options{Root: n.root, RunDir: n.run, Modprobe: n.path("sbin/modprobe")})
	return tuner, logs.All
}

func (n node) path(name string) string { return filepath.Join(n.root, name) }

func (n node) file(t *testing.T, name, content string) {
	t.Helper()
	writeFile(t, n.path(name), content+"\n", 0o644)
}

func writeFile(t *testing.T, path, content string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatalf("make %s: %v", filepath.Dir(path), err)
	}
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		t.Fatalf("write %s: %v", path, err)
	}
}

// sysctlFile is where a key without dots inside its words is.
func sysctlFile(key string) string { return "proc/sys/" + strings.ReplaceAll(key, ".", "/") }

// sysctl sets a key as another program on the node would.
func (n node) sysctl(t *testing.T, key, value string) {
	t.Helper()
	n.file(t, sysctlFile(key), value)
}

func (n node) wantSysctl(t *testing.T, key, want string) {
	t.Helper()
	n.wantFile(t, sysctlFile(key), want)
}

func (n node) wantFile(t *testing.T, name, want string) {
	t.Helper()
	b, err := os.ReadFile(n.path(name))
	if err != nil {
		t.Fatalf("read %s: %v", name, err)
	}
	if got := strings.TrimSpace(string(b)); got != want {
		t.Errorf("%s = %q, want %q", name, got, want)
	}
}

// blocked creates a key that exists but can be neither read nor written, even by root, to which
// permission bits do not apply.
func (n node) blocked(t *testing.T, key string) {
	t.Helper()
	if err := os.MkdirAll(n.path(sysctlFile(key)), 0o755); err != nil {
		t.Fatalf("block %s: %v", key, err)
	}
}

// ignoring makes a key that takes a write and keeps nothing of it, as some
// sandboxes have it.
func (n node) ignoring(t *testing.T, key string) {
	t.Helper()
	n.deaf(t, sysctlFile(key))
}

// deaf makes a file ignore writes.
func (n node) deaf(t *testing.T, name string) {
	t.Helper()
	n.remove(t, name)
	if err := os.Symlink(os.DevNull, n.path(name)); err != nil {
		t.Fatalf("make %s ignore writes: %v", name, err)
	}
}

// danglingRun makes a run directory that has no file and can get none.
func (n node) danglingRun(t *testing.T) {
	t.Helper()
	if err := os.Symlink(n.path("nowhere"), n.run); err != nil {
		t.Fatalf("make a dangling run directory: %v", err)
	}
}

func (n node) remove(t *testing.T, name string) {
	t.Helper()
	if err := os.Remove(n.path(name)); err != nil {
		t.Fatalf("remove %s: %v", name, err)
	}
}
