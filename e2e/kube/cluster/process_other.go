//go:build !linux

package cluster

import "syscall"

func dieWithParent() *syscall.SysProcAttr { return nil }
