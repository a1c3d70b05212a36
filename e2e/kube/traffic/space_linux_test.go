package traffic

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// space is a network namespace: the network of one machine or pod.
type space struct {
	name string
	ns   netns.NsHandle
}

// newSpace makes a namespace that lives until the test ends.
func newSpace(t *testing.T, name string) *space {
	t.Helper()
	s := &space{name: name}
	err := onThread(func() (err error) {
		if err = unix.Unshare(unix.CLONE_NEWNET); err == nil {
			s.ns, err = netns.Get()
		}
		return err
	})
	if err != nil {
		t.Fatalf("make namespace %s: %v", name, err)
	}
	t.Cleanup(func() { _ = s.ns.Close() })
	return s
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

// do runs f inside the namespace: sockets and processes that it makes belong there for good.
func (s *space) do(f func() error) error {
	return onThread(func() error {
		if err := unix.Setns(int(s.ns), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter namespace %s: %w", s.name, err)
		}
		return f()
	})
}

// toolTimeout bounds one program; emulated kernels are slow, hanging ones are slower.
const toolTimeout = 2 * time.Minute

// shell runs lines of shell in the namespace, stopping at the first that fails, and returns what they print.
func (s *space) shell(t *testing.T, script string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), toolTimeout)
	defer cancel()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, "sh", "-ec", script)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := s.do(cmd.Run); err != nil {
		t.Fatalf("in %s: %v: %s\n%s", s.name, err, strings.TrimSpace(stderr.String()), script)
	}
	return stdout.String()
}

// ip gives commands to ip in one go, for the start of a program is what costs under emulation.
func (s *space) ip(t *testing.T, commands ...string) {
	t.Helper()
	s.shell(t, "ip -batch - <<EOF\n"+strings.Join(commands, "\n")+"\nEOF\n")
}

// wire joins two namespaces with a veth pair.
func wire(t *testing.T, a *space, linkA string, b *space, linkB string) {
	t.Helper()
	links, err := netlink.NewHandleAt(a.ns)
	if err != nil {
		t.Fatalf("wire %s to %s: %v", a.name, b.name, err)
	}
	defer links.Close()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = linkA
	if err := links.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: linkB, PeerNamespace: netlink.NsFd(b.ns)}); err != nil {
		t.Fatalf("wire %s to %s: %v", a.name, b.name, err)
	}
}
