// Package nodefs has a directory that looks like the root of a node, for tests of packages that read and
// write files of the kernel.
package nodefs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/procfs"
)

// Node is a directory that looks like the root of a node.
type Node struct {
	Root string
	// Run is the run directory of an agent.
	Run string
}

// New returns a node with the release of its kernel and nothing else.
func New(t *testing.T) Node {
	t.Helper()
	n := Node{Root: t.TempDir(), Run: filepath.Join(t.TempDir(), "run")}
	n.File(t, "proc/sys/kernel/osrelease", "6.1.0-18-amd64")
	return n
}

// Path returns where a file of the node is.
func (n Node) Path(name string) string { return filepath.Join(n.Root, name) }

// File writes a file with one line.
func (n Node) File(t *testing.T, name, content string) {
	t.Helper()
	WriteFile(t, n.Path(name), content+"\n", 0o644)
}

// WriteFile writes a file, with the directories above it.
func WriteFile(t *testing.T, path, content string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatalf("make %s: %v", filepath.Dir(path), err)
	}
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		t.Fatalf("write %s: %v", path, err)
	}
}

// SysctlFile returns the file of a key without dots inside its words.
func SysctlFile(key string) string { return "proc/sys/" + strings.ReplaceAll(key, ".", "/") }

// Sysctl sets a key as another program on the node would.
func (n Node) Sysctl(t *testing.T, key, value string) {
	t.Helper()
	n.File(t, SysctlFile(key), value)
}

// WantSysctl fails the test if a key has another value.
func (n Node) WantSysctl(t *testing.T, key, want string) {
	t.Helper()
	n.WantFile(t, SysctlFile(key), want)
}

// WantFile fails the test if a file has another line.
func (n Node) WantFile(t *testing.T, name, want string) {
	t.Helper()
	b, err := os.ReadFile(n.Path(name))
	if err != nil {
		t.Fatalf("read %s: %v", name, err)
	}
	if got := strings.TrimSpace(string(b)); got != want {
		t.Errorf("%s = %q, want %q", name, got, want)
	}
}

// Block makes a key that exists but can be neither read nor written, not even by root.
func (n Node) Block(t *testing.T, key string) {
	t.Helper()
	if err := os.MkdirAll(n.Path(SysctlFile(key)), 0o755); err != nil {
		t.Fatalf("block %s: %v", key, err)
	}
}

// Ignore makes a key that takes a write and keeps nothing of it, as some sandboxes have it.
func (n Node) Ignore(t *testing.T, key string) {
	t.Helper()
	n.IgnoreFile(t, SysctlFile(key))
}

// IgnoreFile makes a file ignore writes.
func (n Node) IgnoreFile(t *testing.T, name string) {
	t.Helper()
	n.Remove(t, name)
	if err := os.Symlink(os.DevNull, n.Path(name)); err != nil {
		t.Fatalf("make %s ignore writes: %v", name, err)
	}
}

// DangleRun makes a run directory that has no file and can get none.
func (n Node) DangleRun(t *testing.T) {
	t.Helper()
	if err := os.Symlink(n.Path("nowhere"), n.Run); err != nil {
		t.Fatalf("make a dangling run directory: %v", err)
	}
}

// Remove removes a file.
func (n Node) Remove(t *testing.T, name string) {
	t.Helper()
	if err := os.Remove(n.Path(name)); err != nil {
		t.Fatalf("remove %s: %v", name, err)
	}
}

// Files returns the files of the node as packages read them.
func (n Node) Files() procfs.Files { return procfs.Files{Root: n.Root} }
