package topology

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Space is a network namespace: the network of one machine or pod. It lives until Close, or as long as something in it does.
type Space struct {
	name string
	ns   netns.NsHandle
}

func newSpace(name string) (*Space, error) {
	s := &Space{name: name}
	err := onThread(func() (err error) {
		if err = unix.Unshare(unix.CLONE_NEWNET); err == nil {
			s.ns, err = netns.Get()
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("make namespace %s: %w", name, err)
	}
	return s, nil
}

// onThread runs f on a thread of its own, which ends with it.
func onThread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		done <- f()
	}()
	return <-done
}

// Do runs f inside the namespace: sockets and processes that it makes belong there for good.
func (s *Space) Do(f func() error) error {
	return onThread(func() error {
		if err := unix.Setns(int(s.ns), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter namespace %s: %w", s.name, err)
		}
		return f()
	})
}

// toolTimeout bounds one program; emulated kernels are slow, hanging ones are slower.
const toolTimeout = 10 * time.Minute

// Shell runs lines of shell in the namespace, and stops at the first that fails.
func (s *Space) Shell(ctx context.Context, script string) error {
	_, err := s.Output(ctx, script)
	return err
}

// Output runs lines of shell as Shell does, and returns what they print.
func (s *Space) Output(ctx context.Context, script string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, toolTimeout)
	defer cancel()
	var output, complaints bytes.Buffer
	cmd := exec.CommandContext(ctx, "sh", "-ec", script)
	cmd.Stdout, cmd.Stderr = &output, &complaints
	if err := s.Do(cmd.Run); err != nil {
		return nil, fmt.Errorf("in %s: %w: %s%s\n%s", s.name, err, bytes.TrimSpace(complaints.Bytes()), tail(output.Bytes()), script)
	}
	return output.Bytes(), nil
}

// tail is the end of what a program printed, for an error.
func tail(output []byte) []byte { return bytes.TrimSpace(output[max(0, len(output)-1<<10):]) }

// ip gives commands to ip in one go.
func (s *Space) ip(ctx context.Context, commands ...string) error {
	return s.Shell(ctx, "ip -batch - <<EOF\n"+strings.Join(commands, "\n")+"\nEOF\n")
}

// wire joins two namespaces with a veth pair.
func wire(a *Space, linkA string, b *Space, linkB string) error {
	links, err := netlink.NewHandleAt(a.ns)
	if err != nil {
		return fmt.Errorf("wire %s to %s: %w", a.name, b.name, err)
	}
	defer links.Close()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = linkA
	if err := links.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: linkB, PeerNamespace: netlink.NsFd(b.ns)}); err != nil {
		return fmt.Errorf("wire %s to %s: %w", a.name, b.name, err)
	}
	return nil
}
