package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kube-ipvs/kube-ipvs/internal/daemon"
	"github.com/kube-ipvs/kube-ipvs/internal/testkit/poll"
)

// stuckProcess makes this test binary a process that never comes to an end by
// itself, as one whose orderly shutdown hangs.
const stuckProcess = "KUBE_IPVS_TEST_STUCK"

// asProgram makes this test binary the program itself.
const asProgram = "KUBE_IPVS_TEST_PROGRAM"

func TestMain(m *testing.M) {
	daemon.LockName = fmt.Sprintf("@kube-ipvs.test.%d", os.Getpid()) // the machine's own agent, and other tests, have theirs
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	if os.Getenv(stuckProcess) == "" {
		goleak.VerifyTestMain(m)
		return
	}
	ctx, stop := signalContext()
	defer stop()
	fmt.Println("ready")
	<-ctx.Done()
	fmt.Println("told")
	time.Sleep(time.Minute) // the parent ends it long before
}

func TestSecondSignalEndsAtOnce(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), stuckProcess+"=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	expect(t, lines, "ready")
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	expect(t, lines, "told")

	ended := make(chan struct{})
	go func() { defer close(ended); _ = cmd.Wait() }()
	again := time.NewTicker(10 * time.Millisecond) // one may come before the first is dealt with
	defer again.Stop()
	for deadline := time.After(poll.Patience); ; {
		select {
		case <-again.C:
			_ = cmd.Process.Signal(os.Interrupt)
		case <-deadline:
			t.Fatal("the process outlives its second SIGINT")
		case <-ended:
			if status, _ := cmd.ProcessState.Sys().(syscall.WaitStatus); !status.Signaled() || status.Signal() != syscall.SIGINT {
				t.Errorf("ended by %v, want SIGINT", cmd.ProcessState)
			}
			return
		}
	}
}

func expect(t *testing.T, lines *bufio.Scanner, want string) {
	t.Helper()
	if !lines.Scan() || lines.Text() != want {
		t.Fatalf("the process says %q (%v), want %q", lines.Text(), lines.Err(), want)
	}
}
