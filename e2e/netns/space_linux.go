package netns

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"runtime"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Space is a network namespace: the network of one machine or pod. It lives until Close, or as long as
// something in it does.
type Space struct {
	// Name is for messages.
	Name   string
	handle netns.NsHandle
}

// New makes a namespace, with lo down. It needs the rights of root.
func New(name string) (*Space, error) {
	s := &Space{Name: name}
	err := onThread(func() (err error) {
		if err = unix.Unshare(unix.CLONE_NEWNET); err == nil {
			s.handle, err = netns.Get()
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("make namespace %s: %w", name, err)
	}
	return s, nil
}

// onThread runs f on a thread of its own, which ends with it: nothing that f does to the thread can
// leak into another goroutine.
func onThread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		done <- f()
	}()
	return <-done
}

// Close lets go of the namespace.
func (s *Space) Close() { _ = s.handle.Close() }

// Do runs f inside the namespace: sockets and processes that it makes belong there for good.
func (s *Space) Do(f func() error) error {
	return onThread(func() error {
		if err := unix.Setns(int(s.handle), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter namespace %s: %w", s.Name, err)
		}
		return f()
	})
}

// Run runs a program inside the namespace until ctx ends, and returns what it printed on standard
// output. The error has what it printed on standard error.
func (s *Space) Run(ctx context.Context, input, name string, args ...string) (string, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &stdout, &stderr
	err := s.Do(cmd.Run)
	if err != nil {
		err = fmt.Errorf("in %s: %s %s: %w: %s", s.Name, name, strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), err
}

// Shell runs lines of shell, and stops at the first that fails.
func (s *Space) Shell(ctx context.Context, script string) (string, error) {
	return s.Run(ctx, "", "sh", "-ec", script)
}

// IP gives commands to ip in one go, because the start of a program is expensive under emulation.
func (s *Space) IP(ctx context.Context, commands ...string) error {
	_, err := s.Run(ctx, strings.Join(commands, "\n")+"\n", "ip", "-batch", "-")
	return err
}

// Links returns a handle of the links of the namespace; close it.
func (s *Space) Links() (*netlink.Handle, error) { return netlink.NewHandleAt(s.handle) }

// Wire joins two namespaces with a veth pair.
func Wire(a *Space, linkA string, b *Space, linkB string) error {
	links, err := a.Links()
	if err != nil {
		return fmt.Errorf("wire %s to %s: %w", a.Name, b.Name, err)
	}
	defer links.Close()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = linkA
	if err := links.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: linkB, PeerNamespace: netlink.NsFd(b.handle)}); err != nil {
		return fmt.Errorf("wire %s to %s: %w", a.Name, b.Name, err)
	}
	return nil
}
