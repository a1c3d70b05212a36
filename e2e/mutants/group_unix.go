//go:build unix

package main

import (
	"os/exec"
	"syscall"
)

// ownGroup makes a command run in a process group of its own, which ends as a whole: go test leaves its test binary behind
// when it alone is killed.
func ownGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}
