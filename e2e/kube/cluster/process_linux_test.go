package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/kube-ipvs/kube-ipvs/internal/testkit/poll"
)

// TestProcessesEndWithTheirStarter kills a starter, which gets no chance to clean up.
func TestProcessesEndWithTheirStarter(t *testing.T) {
	log := &process{log: filepath.Join(t.TempDir(), "log")}
	starter := exec.CommandContext(t.Context(), fake(t, "starter"), log.log, "/bin/sh", "-c", "echo pid $$ .; exec sleep 1000")
	if err := starter.Start(); err != nil {
		t.Fatal(err)
	}
	if err := awaitReady(t.Context(), log, logHolds(log, ".")); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(log.log)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.Fields(string(text))[1])
	if err != nil {
		t.Fatal(err)
	}
	if err := starter.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = starter.Wait()
	gone := func(context.Context) error {
		stat, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		if syscall.Kill(pid, 0) == nil && !strings.Contains(string(stat), ") Z ") { // its parent may not have collected it yet
			return errors.New("it still runs")
		}
		return nil
	}
	if err := awaitReady(t.Context(), log, gone); err != nil {
		t.Errorf("process %d outlived its starter: %v", pid, err)
	}
}

// TestProcessesOutliveThreads starts a program on a thread that ends then, as those do that entered a namespace.
func TestProcessesOutliveThreads(t *testing.T) {
	p := &process{path: "/bin/sleep", log: filepath.Join(t.TempDir(), "log"), args: []string{"1000"}}
	if err := onEndingThread(t, p.start); err != nil {
		t.Fatal(err)
	}
	if err := p.signal(syscall.Signal(0)); err != nil {
		t.Error(err)
	}
	select {
	case <-p.ended():
		t.Error("the program ended with the thread")
	default:
	}
	if err := p.end(syscall.SIGKILL); err != nil {
		t.Error(err)
	}
}

// onEndingThread calls f on a thread, and returns when that has ended.
func onEndingThread(t *testing.T, f func() error) error {
	t.Helper()
	thread, result := make(chan int, 1), make(chan error, 1)
	var call func()
	call = func() {
		runtime.LockOSThread()
		if syscall.Gettid() == os.Getpid() { // the first thread never ends; while it waits here another has to be taken
			defer runtime.UnlockOSThread()
			var other sync.WaitGroup
			other.Go(call)
			other.Wait()
			return
		}
		thread <- syscall.Gettid()
		result <- f()
	}
	go call()
	task, err := fmt.Sprintf("/proc/self/task/%d", <-thread), <-result
	ctx, cancel := context.WithTimeout(t.Context(), poll.Patience)
	defer cancel()
	gone := func(context.Context) error {
		if _, err := os.Stat(task); !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("thread %s goes on: %w", task, err)
		}
		return nil
	}
	return errors.Join(err, awaitReady(ctx, &process{}, gone))
}
