//go:build !linux

package vm

import (
	"context"
	"errors"
	"os/exec"
)

// errUnsupported is the answer of everything that needs Linux namespaces, anonymous memory or a Linux host's tools.
var errUnsupported = errors.New("running kernels is unsupported on this OS: Linux is needed")

// Prepare is unsupported on this OS.
func Prepare(context.Context, Options) error { return errUnsupported }

// Run is unsupported on this OS.
func Run(context.Context, Options) (int, error) { return StatusBroken, errUnsupported }

// RunInNetns is unsupported on this OS.
func RunInNetns(context.Context, Options) (int, error) { return StatusBroken, errUnsupported }

// HostCan is unsupported on this OS.
func HostCan(context.Context, Need) error { return errUnsupported }

// HostCanIPVS is unsupported on this OS.
func HostCanIPVS(context.Context) error { return errUnsupported }

func fastest() string { return accelQEMU }

func endTogether(*exec.Cmd) {}
