package rules

import (
	"context"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// killChildrenAfter kills, once ctx ends, the processes that the calling
// thread starts from now on. The thread must be locked. The returned stop
// waits until no more killing can happen. A kernel that does not list
// children of a thread leaves them to their own lock wait.
func killChildrenAfter(ctx context.Context) (stop func()) {
	tid := unix.Gettid()
	before := children(tid)
	finished, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-finished:
		case <-ctx.Done():
			kill(tid, before)
		}
	}()
	return func() {
		close(finished)
		<-done
	}
}

// kill: a child stays listed until it is waited for, which happens on the
// thread that is blocked in the call, so its id cannot be somebody else's.
func kill(tid int, before []int) {
	for _, pid := range children(tid) {
		if !slices.Contains(before, pid) {
			_ = unix.Kill(pid, unix.SIGKILL) // it may have ended by itself
		}
	}
}

func children(tid int) []int {
	t := strconv.Itoa(tid)
	text, err := os.ReadFile("/proc/self/task/" + t + "/children")
	if err != nil {
		return nil
	}
	var pids []int
	for _, word := range strings.Fields(string(text)) {
		if pid, err := strconv.Atoi(word); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}
