package vm

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/kube-ipvs/kube-ipvs/internal/testkit/poll"
)

// TestHelpersEndTogether: a build that is given up leaves no compiler running.
func TestHelpersEndTogether(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	dir := t.TempDir()
	ended := make(chan error, 1)
	go func() {
		_, err := output(ctx, dir, "sh", "-c", "sleep 60 & echo $! >child.new; mv child.new child; wait")
		ended <- err
	}()
	var child int
	poll.Until(t, "the number of the helper's own helper", func() bool {
		text, err := os.ReadFile(filepath.Join(dir, "child"))
		if err == nil {
			child, err = strconv.Atoi(strings.TrimSpace(string(text)))
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		return child != 0
	})
	cancel()
	if err := <-ended; err == nil {
		t.Error("a helper that was given up has succeeded")
	}
	gone := func() bool { // or no process has waited for it yet
		text, err := os.ReadFile("/proc/" + strconv.Itoa(child) + "/stat")
		return err != nil || strings.Contains(string(text), ") Z ")
	}
	t.Cleanup(func() {
		if !gone() {
			_ = syscall.Kill(child, syscall.SIGKILL)
		}
	})
	poll.Until(t, "the end of the helper's own helper", gone)
}
