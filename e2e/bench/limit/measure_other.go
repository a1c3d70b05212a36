//go:build !linux

package main

import (
	"context"
	"errors"
)

// errUnsupported is the answer of everything that needs the kernel.
var errUnsupported = errors.New("netlink needs Linux")

func readKernel(context.Context, options) (rows, error) { return rows{}, errUnsupported }

func measure(context.Context, options, rows) (report, error) { return report{}, errUnsupported }
