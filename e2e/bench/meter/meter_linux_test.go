package meter_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/kube-ipvs/kube-ipvs/e2e/bench/meter"
	"github.com/kube-ipvs/kube-ipvs/internal/testkit/poll"
)

func here(f func() error) error { return f() }

// talker is a shell that does what it is told, line after line, and confirms.
type talker struct {
	*meter.Subject
	in  io.Writer
	out io.Reader
}

func newTalker(t *testing.T, m *meter.Meter) *talker {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root for a control group")
	}
	cmd := exec.Command("sh")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	s, err := m.Start(cmd, here)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Stop() })
	return &talker{Subject: s, in: in, out: out}
}

// say returns when the shell has done it.
func (k *talker) say(t *testing.T, line string) {
	t.Helper()
	if _, err := io.WriteString(k.in, line+"\necho done\n"); err != nil {
		t.Fatal(err)
	}
	var done [5]byte
	if _, err := io.ReadFull(k.out, done[:]); err != nil || string(done[:]) != "done\n" {
		t.Fatalf("the shell says %q, %v", done, err)
	}
}

func newMeter(t *testing.T) *meter.Meter {
	t.Helper()
	m := meter.New()
	t.Cleanup(m.Close)
	return m
}

func TestCPUOfWhatWasLaunched(t *testing.T) {
	k := newTalker(t, newMeter(t))
	before, err := k.Cost()
	if err != nil {
		t.Fatal(err)
	}
	k.say(t, `sh -c 'i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done'`)
	after, err := k.Cost()
	if err != nil {
		t.Fatal(err)
	}
	if used := after.Sub(before); used.CPU() < 0.01 || used.Busy < 0.01 {
		t.Errorf("200,000 rounds of a shell's shell cost %+v, want some CPU time", used)
	}
}

// TestLaunches: processes of processes count, those of others and threads do not.
func TestLaunches(t *testing.T) {
	m := newMeter(t)
	if m.LaunchesBy() != meter.ByEvents {
		t.Skip(m.LaunchesBy())
	}
	k, other := newTalker(t, m), newTalker(t, m)
	k.say(t, "/bin/true; /bin/true; sh -c '/bin/true; :'")
	other.say(t, "/bin/true")
	poll.Until(t, "a count of 4 processes", func() bool {
		cost, err := k.Cost()
		if err != nil || cost.Launches > 4 {
			t.Fatalf("4 processes are counted as %g, %v", cost.Launches, err)
		}
		return cost.Launches == 4
	})
}

func TestLaunchesAreAlwaysCountedSomehow(t *testing.T) {
	m := newMeter(t)
	k := newTalker(t, m)
	k.say(t, "/bin/true; /bin/true")
	poll.Until(t, "a count of 2 processes by "+m.LaunchesBy(), func() bool {
		cost, err := k.Cost()
		if err != nil {
			t.Fatal(err)
		}
		return cost.Launches >= 2
	})
}

func TestRest(t *testing.T) {
	k := newTalker(t, newMeter(t))
	if _, over, err := k.Rest(t.Context(), 500*time.Millisecond, time.Minute); over || err != nil {
		t.Errorf("a shell that waits: over %t, %v", over, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := k.Rest(ctx, time.Second, time.Minute); !errors.Is(err, context.Canceled) {
		t.Errorf("error is %v, want that of the context", err)
	}
}

func TestEndIsNoticed(t *testing.T) {
	k := newTalker(t, newMeter(t))
	if err := k.Alive(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(k.in, "exit 3\n"); err != nil {
		t.Fatal(err)
	}
	poll.Until(t, "the end of the shell", func() bool { return k.Alive() != nil })
	if err := k.Alive(); !errors.Is(err, meter.ErrEnded) || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("error is %v, want ErrEnded and the status", err)
	}
}

func TestStopEndsAll(t *testing.T) {
	k := newTalker(t, newMeter(t))
	k.say(t, "sleep 1000 & sh -c 'sleep 1000' &")
	memory, err := k.Memory()
	if err != nil || memory.RSS < memory.Peak*0.5 || memory.Peak <= 0 {
		t.Errorf("memory is %+v, %v", memory, err)
	}
	if err := k.Stop(); err != nil {
		t.Errorf("stop: %v, want all to be killed and the group gone", err)
	}
}

func TestCalibrate(t *testing.T) {
	c, err := meter.Calibrate()
	if err != nil || c.Spins <= 0 || c.Launch <= 0 {
		t.Errorf("calibration is %+v, %v", c, err)
	}
	if d := meter.Describe(); d.Kernel == "" || d.CPUs < 1 || d.Memory < 1 {
		t.Errorf("the machine is %+v", d)
	}
}

// TestTap counts what a request for all links is.
func TestTap(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root for a network namespace")
	}
	errMissing := errors.New("this kernel cannot copy what goes over netlink")
	err := meter.InNewNetwork(func() error {
		tap, err := meter.NewTap()
		if err != nil {
			return fmt.Errorf("%w: %w", errMissing, err)
		}
		lo, err := netlink.LinkByName("lo")
		if err == nil {
			err = netlink.LinkSetUp(lo)
		}
		if err != nil {
			t.Error(err)
		}
		raised := time.Now()
		time.Sleep(20 * time.Millisecond) // so that what reads comes later than what writes
		if _, err := netlink.LinkList(); err != nil {
			t.Error(err)
		}
		traffic, lost, err := tap.Close()
		if v := traffic["NETLINK_ROUTE"]; v.Messages < 1 || v.FromMessages < 2 || v.FromBytes <= v.Bytes || lost != 0 {
			t.Errorf("a list of the links is %+v with %d lost, want a question and links", v, lost)
		}
		if at := tap.Changed(); at.After(raised) || at.Before(raised.Add(-time.Minute)) {
			t.Errorf("the last change was at %s, want that before %s and not the list", at, raised)
		}
		return err
	})
	if errors.Is(err, errMissing) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
}
