package cluster

import "syscall"

// dieWithParent makes the kernel end a child when the thread that started it ends, which covers a test killed outright. Its own
// process group keeps a terminal's ^C away, so that Close decides the order.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
