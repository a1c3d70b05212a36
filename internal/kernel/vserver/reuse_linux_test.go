package vserver_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"
	"golang.org/x/sys/unix"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/internal/testkit/poll"
)

// probed runs a probe, or skips where there is nothing to probe.
func probed(t *testing.T, probe func() (vserver.Reuse, error)) vserver.Reuse {
	t.Helper()
	start := time.Now()
	r, err := probe()
	if errors.Is(err, unix.EPERM) || errors.Is(err, vserver.ErrUnsupported) {
		t.Skipf("skipped: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	mode, why := r.Best()
	t.Logf("figure: in %s: %s; best is %d: %s", time.Since(start).Round(time.Millisecond), r, mode, why)
	return r
}

func TestProbeReuse(t *testing.T) {
	r := probed(t, func() (vserver.Reuse, error) { return vserver.ProbeReuse(ctx, zaptest.NewLogger(t)) })
	// Every kernel these tests run on is newer than 5.16.
	both := vserver.ReuseOutcome{Prompt: true, LeavesDrained: true}
	if want := (vserver.Reuse{Mode0: both, Mode1: both, Default: 1}); r != want {
		t.Errorf("found: %s\nwant: %s", r, want)
	}
}

// TestProbeSeesDrainedDestinations: the probe can tell no from yes. Without
// expire_nodest_conn nothing keeps mode 0 from the old destination.
func TestProbeSeesDrainedDestinations(t *testing.T) {
	r := probed(t, func() (vserver.Reuse, error) {
		return vserver.ProbeReuseWith(ctx, zaptest.NewLogger(t), map[string]string{"conntrack": "1", "expire_nodest_conn": "0"})
	})
	want := vserver.Reuse{
		Mode0:   vserver.ReuseOutcome{Prompt: true},
		Mode1:   vserver.ReuseOutcome{Prompt: true, LeavesDrained: true},
		Default: 1,
	}
	if r != want {
		t.Errorf("found: %s\nwant: %s", r, want)
	}
}

// TestProbeNeedsTracking: where the namespace's connections are not tracked, as
// older kernels may do with those of a new one, a node's behaviour cannot be seen.
func TestProbeNeedsTracking(t *testing.T) {
	_, err := vserver.ProbeReuseWith(ctx, zaptest.NewLogger(t), map[string]string{"conntrack": "0"})
	if errors.Is(err, unix.EPERM) || errors.Is(err, vserver.ErrUnsupported) {
		t.Skipf("skipped: %v", err)
	}
	want := "probe the reuse of source ports: connection tracking does not see the probe's connections"
	if err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

// TestProbeEndsWithItsContext: also while it waits.
func TestProbeEndsWithItsContext(t *testing.T) {
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := vserver.ProbeReuse(ended, zap.NewNop()); !errors.Is(err, context.Canceled) &&
		!errors.Is(err, unix.EPERM) && !errors.Is(err, vserver.ErrUnsupported) {
		t.Errorf("error %v, want %v", err, context.Canceled)
	}
}

// TestProbeLeavesNoThreadBehind: no thread of the process, the first included, is
// in another namespace afterwards.
func TestProbeLeavesNoThreadBehind(t *testing.T) {
	before := namespaces(t)
	_, _ = vserver.ProbeReuse(ctx, zaptest.NewLogger(t)) // with IPVS or without
	added := func(name string) bool { return !slices.Contains(before, name) }
	poll.Until(t, "all threads in the namespaces of before", func() bool { return !slices.ContainsFunc(namespaces(t), added) },
		func() string { return fmt.Sprintf("threads in %v, before in %v", namespaces(t), before) })
}

// TestApartFromTheFirstThread: that one never ends, so it must not be moved.
func TestApartFromTheFirstThread(t *testing.T) {
	if apartThread == 0 || apartThread == os.Getpid() {
		t.Errorf("ran on thread %d of process %d, want another one", apartThread, os.Getpid())
	}
}

var apartThread int

// init runs on the process's first thread.
func init() { vserver.Apart(func() { apartThread = unix.Gettid() }) }

// namespaces lists those that the threads of this process are in.
func namespaces(t *testing.T) []string {
	t.Helper()
	links, err := filepath.Glob("/proc/self/task/*/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	var names []string
	for _, link := range links {
		name, err := os.Readlink(link)
		if err == nil && !seen[name] { // a thread may have ended meanwhile
			seen[name] = true
			names = append(names, name)
		}
	}
	return names
}

// TestLostPacketIsSeen: a listener whose queue is full ignores the first packet,
// and has room when it is repeated.
func TestLostPacketIsSeen(t *testing.T) {
	listener, port := narrowListener(t)
	addr := netip.MustParseAddr("127.0.0.1")
	from, to := netip.AddrPortFrom(addr, freePort(t)), netip.AddrPortFrom(addr, port)
	filler, err := net.Dial("tcp4", to.String())
	if err != nil {
		t.Fatal(err)
	}
	defer filler.Close()
	accepted := make(chan error, 1)
	go func() {
		for deadline := time.Now().Add(poll.Patience); !waitsForAnswer(t, from) && time.Now().Before(deadline); {
			time.Sleep(time.Millisecond)
		}
		var err error
		for range 2 {
			var fd int
			if fd, _, err = unix.Accept(listener); err != nil {
				break
			}
			_, _ = unix.Write(fd, []byte{7})
			_ = unix.Close(fd)
		}
		accepted <- err
	}()
	got, err := vserver.DialFrom(ctx, from, to)
	if want := (vserver.Reply{Answered: true, Name: 7, Lost: true}); err != nil || got != want {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
	if err := <-accepted; err != nil {
		t.Error(err)
	}
}

// TestNoPacketIsLost is the same with room in the queue.
func TestNoPacketIsLost(t *testing.T) {
	addr := netip.MustParseAddr("127.0.0.1")
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write([]byte{8})
			_ = conn.Close()
		}
	}()
	from := netip.AddrPortFrom(addr, freePort(t))
	for range 3 { // the port is free again each time
		got, err := vserver.DialFrom(ctx, from, netip.MustParseAddrPort(listener.Addr().String()))
		if want := (vserver.Reply{Answered: true, Name: 8}); err != nil || got != want {
			t.Errorf("%+v, %v; want %+v", got, err, want)
		}
	}
	closed := netip.AddrPortFrom(addr, freePort(t))
	if got, err := vserver.DialFrom(ctx, from, closed); err != nil || got.Answered {
		t.Errorf("without a server: %+v, %v; want no answer", got, err)
	}
}

// narrowListener has a queue of one connection.
func narrowListener(t *testing.T) (fd int, port uint16) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return fd, uint16(name.(*unix.SockaddrInet4).Port)
}

func freePort(t *testing.T) uint16 {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return netip.MustParseAddrPort(l.Addr().String()).Port()
}

// waitsForAnswer tells that a socket has sent its first packet, in vain: it is in
// SYN_SENT (02) and its timer for the repeat runs (01).
func waitsForAnswer(t *testing.T, from netip.AddrPort) bool {
	text, err := os.ReadFile("/proc/thread-self/net/tcp")
	if err != nil {
		t.Error(err)
		return true
	}
	local := fmt.Sprintf(" 0100007F:%04X ", from.Port())
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); strings.Contains(line, local) && len(fields) > 5 {
			return fields[3] == "02" && strings.HasPrefix(fields[5], "01:")
		}
	}
	return false
}
