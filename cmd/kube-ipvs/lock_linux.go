package main

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// flock takes the lock of an open file, or fails with errRunning at once.
func flock(f *os.File) error {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return errRunning
	}
	return err
}
