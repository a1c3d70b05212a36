package main

import (
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// init asks to be told when "go run" dies: it passes interrupts on, but a SIGTERM ends it and leaves its child behind. An
// installed vmrun outlives its parent like any program. It is done in init because that runs on the process's first thread,
// which lives as long as the process, and the kernel binds the wish to a thread.
func init() {
	self, err := os.Executable()
	if err == nil && strings.Contains(self, "/go-build") {
		_ = unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGTERM), 0, 0, 0)
	}
}
