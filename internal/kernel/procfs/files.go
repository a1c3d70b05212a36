package procfs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Files are the files of one node's kernel.
type Files struct {
	// Root is the directory that holds proc, sys, lib and run; "/" if empty.
	Root string
}

func (f Files) root() string {
	if f.Root == "" {
		return "/"
	}
	return f.Root
}

// FS returns the files as a file system, for patterns.
func (f Files) FS() fs.FS { return os.DirFS(f.root()) }

// Release returns the kernel's release as uname -r prints it.
func (f Files) Release() (string, error) {
	release, err := f.Read("proc/sys/kernel/osrelease")
	if err != nil {
		return "", fmt.Errorf("read the kernel release: %w", err)
	}
	if release == "" {
		return "", fmt.Errorf("read the kernel release: the file is empty")
	}
	return release, nil
}

// Sysctls of the network are below netSysctls. A container has /proc/sys read-only
// unless it is privileged; one that is not may have the node's own mounted beside it, at
// hostNetSysctls, which with CAP_NET_ADMIN suffices to set them.
const (
	netSysctls     = "proc/sys/net"
	hostNetSysctls = "host/proc/sys/net"
)

// Path returns where a file of the kernel is.
func (f Files) Path(elem ...string) string {
	name := filepath.Join(elem...)
	if key, ok := strings.CutPrefix(name, netSysctls+"/"); ok && f.hasHostSysctls() {
		name = filepath.Join(hostNetSysctls, key)
	}
	return filepath.Join(f.root(), name)
}

// hasHostSysctls looks each time: a mount may come and go, and a look is cheap beside what
// follows. A directory without the keys of every network namespace is no such mount.
func (f Files) hasHostSysctls() bool {
	_, err := os.Stat(filepath.Join(f.root(), hostNetSysctls, "ipv4"))
	return err == nil
}

// Read returns a file of the kernel in one line, with single blanks.
func (f Files) Read(name string) (string, error) {
	b, err := os.ReadFile(f.Path(name))
	return OneLine(string(b)), err
}

// fileTimeout bounds a single read or write of a kernel file.
const fileTimeout = 5 * time.Second

// Bounded runs a file operation and gives up on it when the context ends or after
// fileTimeout. Some keys take the kernel's routing lock, and a file operation
// knows no deadline: one that never ends keeps its goroutine, not the caller. Memory that it writes to must not be used after an error.
func Bounded(ctx context.Context, operation func() error) error {
	ctx, cancel := context.WithTimeout(ctx, fileTimeout)
	defer cancel()
	if err := ctx.Err(); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { done <- operation() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("no answer from the kernel: %w", ctx.Err())
	}
}

// OneLine makes values comparable: the kernel prints lists with tabs.
func OneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// Get reads a kernel file under a deadline. No named result may replace have: a reader that was
// abandoned can still write to it.
func (f Files) Get(ctx context.Context, name string) (string, error) {
	var have string
	err := Bounded(ctx, func() (err error) { have, err = f.Read(name); return err })
	if err != nil {
		return "", err
	}
	return have, nil
}

// Put writes a kernel file under a deadline and reads it back, for some sandboxes
// accept a write and ignore it; taken reports whether the present value will do.
func (f Files) Put(ctx context.Context, name, value string, taken func(now string) bool) error {
	return Bounded(ctx, func() error {
		if err := writeExisting(f.Path(name), value); err != nil {
			return err
		}
		now, err := f.Read(name)
		if err == nil && !taken(now) {
			err = fmt.Errorf("the kernel keeps %q", now)
		}
		return err
	})
}

// writeExisting writes to a file that is there; it never makes one.
func writeExisting(path, value string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value + "\n")
	return errors.Join(err, f.Close())
}

// SysctlPath turns a key into a file name below the root: dots and slashes change
// places, as sysctl(8) does it. A key that leads out of /proc/sys is refused.
func SysctlPath(key string) (string, error) {
	name := strings.Map(func(r rune) rune {
		switch r {
		case '.':
			return '/'
		case '/':
			return '.'
		}
		return r
	}, key)
	if !filepath.IsLocal(name) || name != filepath.Clean(name) {
		return "", fmt.Errorf("%q is not the key of a sysctl", key)
	}
	return filepath.Join("proc", "sys", name), nil
}
