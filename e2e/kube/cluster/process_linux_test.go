package cluster

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
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
		if syscall.Kill(pid, 0) == nil && !strings.Contains(string(stat), ") Z ") { // nobody may be there to collect it
			return errors.New("it still runs")
		}
		return nil
	}
	if err := awaitReady(t.Context(), log, gone); err != nil {
		t.Errorf("process %d outlived its starter: %v", pid, err)
	}
}
