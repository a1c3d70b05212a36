package tune

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"go.uber.org/zap"
)

// Options configure a Tuner. The zero value is the default.
type Options struct {
	// Root is the directory that holds proc, sys and lib; "/" if empty.
	Root string
	// RunDir is where the journal lives; /run/kube-ipvs if empty. It should not
	// outlive the kernel's state: a reboot undoes every sysctl anyway.
	RunDir string
	// Modprobe is the program that loads modules; "modprobe" from PATH if empty.
	Modprobe string
	// Timeout bounds each run of it; 30 s if zero.
	Timeout time.Duration
}

// Tuner reads and changes the settings of one node. Methods that use the journal (the Apply and
// Restore family) must not run at the same time; all others may.
type Tuner struct {
	log  *zap.Logger
	opts Options
	said map[string]string // of each key, how it was found last
	// journal is what was wrong with the journal when it was opened last.
	journal string
}

// New returns a tuner. It touches nothing.
func New(log *zap.Logger, opts Options) *Tuner {
	if opts.Root == "" {
		opts.Root = "/"
	}
	if opts.RunDir == "" {
		opts.RunDir = "/run/kube-ipvs"
	}
	if opts.Modprobe == "" {
		opts.Modprobe = "modprobe"
	}
	if opts.Timeout <= 0 {
		opts.Timeout = 30 * time.Second
	}
	return &Tuner{log: log.Named("tune"), opts: opts, said: map[string]string{}}
}

// Release returns the kernel's release as uname -r prints it.
func (t *Tuner) Release() (string, error) {
	release, err := t.read("proc/sys/kernel/osrelease")
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

func (t *Tuner) path(elem ...string) string {
	name := filepath.Join(elem...)
	if key, ok := strings.CutPrefix(name, netSysctls+"/"); ok && t.hasHostSysctls() {
		name = filepath.Join(hostNetSysctls, key)
	}
	return filepath.Join(t.opts.Root, name)
}

// hasHostSysctls looks each time: a mount may come and go, and a look is cheap beside what
// follows. A directory without the keys of every network namespace is no such mount.
func (t *Tuner) hasHostSysctls() bool {
	_, err := os.Stat(filepath.Join(t.opts.Root, hostNetSysctls, "ipv4"))
	return err == nil
}

// read returns a file of the kernel in one line, with single blanks.
func (t *Tuner) read(name string) (string, error) {
	b, err := os.ReadFile(t.path(name))
	return oneLine(string(b)), err
}

// fileTimeout bounds a single read or write of a kernel file.
const fileTimeout = 5 * time.Second

// bounded runs a file operation and gives up on it when the context ends or after fileTimeout. Some
// keys take the kernel's routing lock, and a file operation knows no deadline: one that never ends
// keeps its goroutine, not the caller. Its data must not be used after an error.
func bounded(ctx context.Context, operation func() error) error {
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

// oneLine makes values comparable: the kernel prints lists with tabs.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
