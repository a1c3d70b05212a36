package measure_test

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/kube-ipvs/kube-ipvs/e2e/bench/measure"
	"github.com/kube-ipvs/kube-ipvs/internal/testkit/poll"
)

func here(f func() error) error { return f() }

// talker is a shell that does what it is told, line after line, and confirms.
type talker struct {
	*measure.Process
	in  io.Writer
	out io.Reader
}

func newTalker(t *testing.T) *talker {
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
	s, err := measure.Start(cmd, here)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Stop() })
	return &talker{Process: s, in: in, out: out}
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

func TestCPUOfWhatWasLaunched(t *testing.T) {
	k := newTalker(t)
	before, err := k.Cost()
	if err != nil {
		t.Fatal(err)
	}
	k.say(t, `sh -c 'i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done'`)
	after, err := k.Cost()
	if err != nil {
		t.Fatal(err)
	}
	if used := after.Sub(before); used.CPU() < 0.01 {
		t.Errorf("200,000 rounds of a shell's shell cost %+v, want some CPU time", used)
	}
}

func TestRest(t *testing.T) {
	k := newTalker(t)
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
	k := newTalker(t)
	if err := k.Alive(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(k.in, "exit 3\n"); err != nil {
		t.Fatal(err)
	}
	poll.Until(t, "the end of the shell", func() bool { return k.Alive() != nil })
	if err := k.Alive(); !errors.Is(err, measure.ErrEnded) || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("error is %v, want ErrEnded and the status", err)
	}
}

func TestStopEndsAll(t *testing.T) {
	k := newTalker(t)
	k.say(t, "sleep 1000 & sh -c 'sleep 1000' &")
	if rss, err := k.RSS(); err != nil || rss <= 0 {
		t.Errorf("RSS is %g MiB, %v", rss, err)
	}
	if err := k.Stop(); err != nil {
		t.Errorf("stop: %v, want all to be killed and the group gone", err)
	}
}
